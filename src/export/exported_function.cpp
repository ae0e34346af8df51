#include <ATen/core/grad_mode.h>

#include "ahead/errors.h"
#include "ahead/exported.h"
#include "ir/sizes/size_reads.h"
#include "runtime/backends.h"
#include "runtime/compile_request.h"

namespace ahead::aot {
namespace {

using InputKind = GraphSignature::InputKind;
using OutputKind = GraphSignature::OutputKind;

void check_number(size_t given, size_t wanted, const char* what) {
  if (given == wanted) return;
  throw UserError("export", "the program takes " + std::to_string(wanted) + " " + what + ", and " +
                                std::to_string(given) +
                                " were passed. Its signature tells their names.");
}

}  // namespace

const at::Tensor& ExportedModule::tensor(std::string_view name) const {
  const int64_t position = signature.find_input(name);
  if (position >= 0 && position < static_cast<int64_t>(tensors.size()))
    return tensors[static_cast<size_t>(position)];
  throw UserError("export", "\"" + std::string(name) +
                                "\": there is no parameter, buffer or constant of this name. Its "
                                "signature tells those there are.");
}

ExportedFunction ExportedModule::prepare(const std::string& backend) const {
  return ExportedFunction(*this, backend);
}

std::vector<at::Tensor> ExportedModule::operator()(const std::vector<at::Tensor>& inputs) const {
  return prepare()(inputs);
}

ExportedFunction::ExportedFunction(const ExportedModule& module, const std::string& backend)
    : signature_(module.signature), tensors_(module.tensors) {
  signature_.check(module.graph);
  if (tensors_.size() != signature_.static_inputs().size()) {
    throw UserError("export", std::to_string(tensors_.size()) + " tensors: the graph takes " +
                                  std::to_string(signature_.static_inputs().size()) +
                                  " parameters, buffers and constants. Give one for each.");
  }
  if (!runtime::traits_of(backend).takes_sizes) {
    refuse_size_reads(module.graph, "export",
                      "The backend \"" + backend + "\" takes graphs of fixed sizes only.");
  }
  executable_ = runtime::find_backend(backend)(runtime::request_for(
      module.graph, "ExportedModule", runtime::StaticArguments(tensors_.size(), true)));
}

std::vector<at::Tensor> ExportedFunction::operator()(const std::vector<at::Tensor>& inputs) const {
  check_number(0, signature_.names_of(InputKind::Tangent).size(), "tangents");
  return run(inputs).outputs;
}

ExportedFunction::Results ExportedFunction::run(const std::vector<at::Tensor>& inputs,
                                                const std::vector<at::Tensor>& tangents) const {
  check_number(inputs.size(), signature_.user_inputs().size(), "tensors");
  check_number(tangents.size(), signature_.names_of(InputKind::Tangent).size(), "tangents");
  std::vector<at::Tensor> arguments = tensors_;
  arguments.insert(arguments.end(), inputs.begin(), inputs.end());
  const std::vector<at::Tensor> targets = arguments;
  arguments.insert(arguments.end(), tangents.begin(), tangents.end());
  // In the caller's grad mode, which a few kernels (those of LSTMs) go by.
  const std::vector<at::Tensor> made = executable_(std::move(arguments));
  const at::NoGradGuard no_grad;
  Results results;
  for (size_t i = 0; i < signature_.outputs.size(); ++i) {
    const GraphSignature::Output& output = signature_.outputs[i];
    switch (output.kind) {
      case OutputKind::UserOutput:
        results.outputs.push_back(made[i]);
        break;
      case OutputKind::Gradient:
        results.gradients.emplace(output.name, made[i]);
        break;
      case OutputKind::Token:
        break;
      default:
        targets[static_cast<size_t>(signature_.find_input(output.name))].copy_(made[i]);
    }
  }
  return results;
}

}  // namespace ahead::aot
