#include <torch/csrc/autograd/variable.h>

#include "ahead/errors.h"
#include "ahead/exported.h"
#include "base/private_members.h"
#include "export/export_trace.h"
#include "export/module_state.h"
#include "export/name_inputs.h"
#include "export/write_inputs.h"

namespace ahead::aot {
namespace {

void check_arguments(const std::vector<at::Tensor>& inputs, const exporting::ModuleState& state) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    const exporting::NamedTensor* own = state.find(inputs[i]);
    if (own == nullptr) continue;
    throw UserError("export", "argument " + std::to_string(i) + ": it is the module's own \"" +
                                  own->name + "\". Pass a tensor of your own.");
  }
}

bool has_hooks(const at::Tensor& tensor) {
  for (const auto& hook : torch::autograd::impl::hooks(tensor)) {
    const torch::autograd::hooks_list* functions = functions_of(*hook);
    if (functions == nullptr) return true;
    for (const auto& function : *functions) {
      if (function) return true;  // a removed one is empty
    }
  }
  return false;
}

/// A hook changes the gradient that eager leaves in `.grad`, and is no part of any graph.
void check_no_hooks(const at::Tensor& tensor, const std::string& what) {
  if (!tensor.requires_grad() || !has_hooks(tensor)) return;
  throw Unsupported("export",
                    what +
                        ": it has a hook (register_hook), which no exported gradient would "
                        "call. Remove it, and change gradients where they are used.");
}

void check_no_hooks(const std::vector<at::Tensor>& inputs, const exporting::ModuleState& state) {
  for (const exporting::NamedTensor& parameter : state.parameters)
    check_no_hooks(parameter.tensor, "\"" + parameter.name + "\"");
  for (size_t i = 0; i < inputs.size(); ++i)
    check_no_hooks(inputs[i], "argument " + std::to_string(i));
}

void check_loss_named(const ExportOptions& options) {
  if (!options.trace_joint || !options.no_tangents || options.output_loss_index >= 0) return;
  throw UserError("export",
                  "ExportOptions::trace_joint: it is required that one of your forward outputs "
                  "must be a scalar loss. Say which one with output_loss_index, or set no_tangents "
                  "to false.");
}

/// Exactly the loss is differentiated.
class LossRules {
 public:
  LossRules(const Graph& graph, const tracing::FunctionMeta& meta, int64_t loss, size_t num_results)
      : graph_(graph), meta_(meta), loss_(loss), num_results_(num_results) {}

  void check() const {
    const std::string where =
        "We require the output marked as the loss (at index " + std::to_string(loss_) + ") to ";
    if (loss_ >= static_cast<int64_t>(num_results_)) {
      throw UserError("export", where + "exist, and the module returns " +
                                    std::to_string(num_results_) +
                                    " tensors. Correct output_loss_index.");
    }
    const Graph::Output& loss = graph_.outputs()[static_cast<size_t>(
        graph_.find_output({Slot::Kind::Output, static_cast<int32_t>(loss_)}))];
    if (loss.value == nullptr || loss.value->meta.numel() != 1) {
      throw UserError("export",
                      where + "be a scalar tensor. Got " +
                          (loss.value == nullptr ? "an undefined one" : loss.value->meta.str()) +
                          ". Reduce it with mean() or sum().");
    }
    if (!loss.requires_grad) {
      throw UserError("export", where +
                                    "require gradients. Let it depend on parameters that require "
                                    "grad, in grad mode and without detach().");
    }
    check_others();
  }

 private:
  void check_others() const {
    for (const auto& differentiable : meta_.differentiable) {
      const Slot slot = graph_.outputs()[static_cast<size_t>(differentiable.position)].slot;
      if (slot.index == loss_) continue;
      throw UserError("export",
                      "Found an output of the forward that requires gradients, that was not the "
                      "scalar loss: output_loss_index is " +
                          std::to_string(loss_) + ", and the output at index " +
                          std::to_string(slot.index) + " requires grad. Detach it.");
    }
  }

  const Graph& graph_;
  const tracing::FunctionMeta& meta_;
  const int64_t loss_;
  const size_t num_results_;
};

void check_assigned(const exporting::BufferWatch::Assigned& assigned) {
  const at::Tensor &buffer = assigned.buffer, &value = assigned.value;
  const bool fits = value.defined() && value.sizes() == buffer.sizes() &&
                    value.scalar_type() == buffer.scalar_type() &&
                    value.device() == buffer.device();
  if (!fits) {
    throw Unsupported("export", TensorMeta::of(buffer).str() +
                                    ": the module assigns a tensor of another shape, dtype or "
                                    "device to this buffer. Write to it with copy_().");
  }
  if (!value.requires_grad()) return;
  throw Unsupported("export",
                    TensorMeta::of(buffer).str() +
                        ": the module assigns a tensor that requires grad to this buffer. "
                        "Detach it.");
}

}  // namespace

ExportedModule detail::export_flat(const std::shared_ptr<torch::nn::Module>& module,
                                   const FlatFunction& forward,
                                   const std::vector<at::Tensor>& inputs,
                                   const ExportOptions& options) {
  if (module == nullptr) throw UserError("export", "the module is null. Make one first.");
  check_loss_named(options);
  exporting::TracedModule traced{{}, exporting::ModuleState(*module), 0, {}};
  check_arguments(inputs, traced.state);
  exporting::check_no_wrappers(module->parameters());
  exporting::check_no_wrappers(module->buffers());
  if (options.trace_joint) check_no_hooks(inputs, traced.state);
  exporting::BufferWatch buffers(*module);
  const FlatFunction function = [&](const std::vector<at::Tensor>& leaves) {
    std::vector<at::Tensor> results = forward(leaves);
    traced.num_results = results.size();
    for (const exporting::BufferWatch::Assigned& assigned : buffers.take()) {
      check_assigned(assigned);
      traced.assigned.push_back(assigned.buffer);
      results.push_back(assigned.value);
    }
    return results;
  };
  exporting::ExportTrace how{.joint = options.trace_joint,
                             .no_tangents = options.no_tangents,
                             .reads_sizes = !options.trace_joint};
  if (options.trace_joint && options.no_tangents) {
    how.check_outputs = [&](const Graph& graph, const tracing::FunctionMeta& meta) {
      LossRules(graph, meta, options.output_loss_index, traced.num_results).check();
    };
  }
  traced.graph = exporting::trace_exported(function, inputs, how);
  if (!options.decompositions.empty()) passes::decompose(traced.graph, options.decompositions);
  ExportedModule exported = exporting::name_inputs(traced, options);
  if (options.keep_input_mutations) exporting::write_inputs(exported);
  exported.signature.check(exported.graph);
  exported.graph.verify();
  return exported;
}

}  // namespace ahead::aot

void ahead::detail::throw_wrong_number(size_t count) {
  throw UserError("export", "the module's forward does not take " + std::to_string(count) +
                                " tensors. Pass the arguments that it takes as a std::tuple.");
}
