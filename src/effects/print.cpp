#include "ahead/print.h"

#include <ATen/core/Formatting.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <iostream>
#include <mutex>
#include <sstream>

#include "ahead/errors.h"

namespace ahead {
namespace {

std::string text_of(const at::Tensor& tensor) {
  if (!tensor.defined()) return "undefined";
  std::ostringstream text;
  if (tensor.dim() == 0 && tensor.layout() == at::kStrided && !tensor.is_quantized()) {
    text << tensor.item();
  } else {
    text << tensor;
  }
  return text.str();
}

/// The format in pieces, between which its places are.
std::vector<std::string> pieces_of(const std::string& format) {
  std::vector<std::string> pieces(1);
  for (size_t i = 0; i < format.size(); ++i) {
    const char letter = format[i];
    const char next = i + 1 < format.size() ? format[i + 1] : '\0';
    if (letter != '{' && letter != '}') {
      pieces.back() += letter;
      continue;
    }
    if (letter == '{' && next == '}') {
      pieces.emplace_back();
    } else if (letter == next) {
      pieces.back() += letter;
    } else {
      throw UserError("print", "\"" + format + "\": a brace stands alone. Write {} for a tensor, " +
                                   "{{ or }} for a brace.");
    }
    ++i;
  }
  return pieces;
}

std::vector<std::string> checked_pieces(const std::string& format, size_t num_tensors) {
  std::vector<std::string> pieces = pieces_of(format);
  if (pieces.size() == num_tensors + 1) return pieces;
  throw UserError("print", "\"" + format + "\": it has places for " +
                               std::to_string(pieces.size() - 1) + " tensors, but " +
                               std::to_string(num_tensors) +
                               " were given. Write {} once for each tensor.");
}

void print_now(c10::string_view format, at::TensorList tensors) {
  const std::vector<std::string> pieces = checked_pieces(std::string(format), tensors.size());
  std::string line = pieces[0];
  for (size_t i = 0; i < tensors.size(); ++i) line += text_of(tensors[i]) + pieces[i + 1];
  line += '\n';
  static auto* mutex = new std::mutex;
  std::lock_guard<std::mutex> lock(*mutex);
  std::cout << line << std::flush;
}

}  // namespace

void print(std::string format, const std::vector<at::Tensor>& tensors) {
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("ahead::print", "")
                             .typed<void(c10::string_view, at::TensorList)>();
  checked_pieces(format, tensors.size());
  op.call(format, tensors);
}

TORCH_LIBRARY_FRAGMENT(ahead, library) {
  library.def("print(str format, Tensor[] tensors) -> ()");
}

TORCH_LIBRARY_IMPL(ahead, CompositeExplicitAutograd, library) {
  library.impl("print", print_now);
}

TORCH_LIBRARY_IMPL(ahead, Autograd, library) {
  library.impl("print", torch::CppFunction::makeFallthrough());
}

}  // namespace ahead
