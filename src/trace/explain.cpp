#include "trace/explain.h"

#include <string>
#include <typeinfo>

#include "ahead/errors.h"
#include "trace/tracer.h"

namespace ahead::tracing {
namespace {

/// Memory is read without an operator, so it is LibTorch that notices. Its two complaints:
bool is_data_access(const c10::Error& error) {
  if (typeid(error) != typeid(c10::Error)) return false;
  for (const char* text :
       {"its data is not allocated yet", "Cannot access data pointer of Tensor"}) {
    if (error.msg().find(text) != std::string::npos) return true;
  }
  return false;
}

/// The one chain of views through which LibTorch's functionalisation cannot write.
bool is_unfunctionalizable_view(const c10::Error& error) {
  return error.msg().find("encountered a mutation on a view chain") != std::string::npos ||
         error.msg().find("tensor being mutated that has internal overlap") != std::string::npos;
}

bool says(const c10::Error& error, const char* text) {
  return error.msg().find(text) != std::string::npos;
}

/// What LibTorch says where an integer has to be known and is read from a tensor.
bool is_size_read(const c10::Error& error) {
  if (Tracer::current() == nullptr || !Tracer::current()->size_reads().any()) return false;
  for (const char* text : {"when unpacking SymInt, expected int but got",
                           "Cannot access Python interpreter from C++",
                           "SymIntArrayRef expected to contain only concrete integers",
                           "on tensor with symbolic sizes/strides"}) {
    if (error.msg().find(text) != std::string::npos) return true;
  }
  return false;
}

}  // namespace

void explain(const c10::Error& error) {
  if (is_unfunctionalizable_view(error)) {
    throw Unsupported("trace",
                      "as_strided, unfold: the function writes to a view whose elements overlap, "
                      "or that as_strided made of another view. Write to a clone and copy it "
                      "back.");
  }
  if (says(error, "cannot mutate tensors with frozen storage")) {
    throw Unsupported(
        "trace",
        "set_: the function writes to a view of what a tensor held before set_() gave "
        "it other memory. Write to a clone.");
  }
  if (says(error, "view size is not compatible with input tensor's size and stride")) {
    throw Unsupported("trace",
                      "view: a tensor has no view of this shape, or the function writes through "
                      "one that LibTorch cannot write back. Use reshape, or write to a clone.");
  }
  if (says(error, "operator whose output has alias annotations")) {
    throw Unsupported("trace",
                      "custom operator: its schema says that it returns a view of an argument, "
                      "which no graph can follow. Return a clone, or call it outside.");
  }
  if (says(error, "Cannot set version_counter for inference tensor")) {
    throw Unsupported("trace",
                      "inference mode: the function turns it on and takes a view of a tensor that "
                      "was made outside of it. Use no_grad there, or call the function in "
                      "inference mode.");
  }
  if (says(error, "Autograd not support dtype")) {
    throw Unsupported("trace",
                      "in-place operator: it would give a view of a tensor of integers or truth "
                      "values a gradient. Detach its other arguments.");
  }
  if (is_size_read(error)) {
    throw DataDependent("trace",
                        "aten._local_scalar_dense: a size that is read from a tensor is asked for "
                        "as a plain number, which it is not before the graph runs. Keep it as "
                        "c10::SymInt, ask tensors for sym_size(), sym_sizes() and sym_numel(), and "
                        "call operators that take such sizes (`torch::full_symint`).");
  }
  if (is_data_access(error)) {
    throw DataDependent("trace",
                        "data_ptr: the values of a traced tensor are read (data_ptr, accessor, "
                        "print or similar), but they "
                        "do not exist while tracing. Do it outside the traced function.");
  }
}

}  // namespace ahead::tracing
