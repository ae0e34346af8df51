#include "runtime/call/debug_asserts.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>

#include "ahead/errors.h"
#include "base/hash.h"
#include "ir/tensor_meta.h"
#include "ops/facts/aliasing.h"
#include "tensors/below_tracing.h"

namespace ahead::runtime {
namespace {

std::string name_of_input(Slot slot, int64_t num_params_buffers) {
  if (slot.kind != Slot::Kind::Primal) return slot.str();
  if (slot.index < num_params_buffers) return "parameter/buffer " + std::to_string(slot.index);
  return "input " + std::to_string(slot.index - num_params_buffers);
}

/// How a tensor differs from its metadata in the graph; empty if it does not.
std::string difference(const TensorMeta& expected, const at::Tensor& tensor, bool with_strides) {
  if (!tensor.defined()) return "it is undefined";
  const bool is_same = tensor.scalar_type() == expected.dtype &&
                       tensor.device() == expected.device && tensor.sizes() == expected.sizes &&
                       (!with_strides || lies_like(tensor, expected));
  if (is_same) return "";
  TensorMeta is = TensorMeta::of(tensor);
  TensorMeta should_be = expected;
  is.offset = should_be.offset = 0;
  is.requires_grad = should_be.requires_grad = false;
  return "it is " + is.str() + ", the graph says " + should_be.str();
}

bool shares_memory(const at::Tensor& a, const at::Tensor& b) {
  return a.defined() && b.defined() && a.has_storage() && b.has_storage() &&
         a.storage().nbytes() != 0 && a.is_alias_of(b);
}

}  // namespace

DebugAsserts::DebugAsserts(const Graph& forward, const Graph* backward,
                           int64_t num_params_buffers) {
  const ops::Aliasing aliasing(forward);
  for (const Graph::Input& input : forward.inputs()) {
    inputs_.push_back({name_of_input(input.slot, num_params_buffers), true, input.value->meta,
                       aliasing.group(input.value)});
  }
  for (const Graph::Output& output : forward.outputs()) {
    const bool is_defined = output.value != nullptr;
    outputs_.push_back({output.slot.str(), is_defined,
                        is_defined ? output.value->meta : TensorMeta(),
                        is_defined ? aliasing.group(output.value) : 0});
  }
  if (backward == nullptr) return;
  for (const Graph::Input& input : backward->inputs()) {
    if (input.slot.kind == Slot::Kind::Tangent)
      tangents_.push_back({input.slot.str(), true, input.value->meta});
  }
  for (const Graph::Output& output : backward->outputs()) {
    const bool is_defined = output.value != nullptr;
    gradients_.push_back(
        {output.slot.str(), is_defined, is_defined ? output.value->meta : TensorMeta()});
  }
}

void DebugAsserts::check_inputs(const std::vector<at::Tensor>& inputs) const {
  for (size_t i = 0; i < inputs_.size(); ++i) {
    const Expected& expected = inputs_[i];
    std::string problem = difference(expected.meta, inputs[i], /*with_strides=*/true);
    if (problem.empty() && inputs[i].requires_grad() && !expected.meta.requires_grad) {
      problem = "it requires grad, but the graph was made under the assumption that " +
                expected.name + " would not require grad";
    }
    if (problem.empty()) continue;
    throw InternalError("call", expected.name + ": " + problem +
                                    ". The guards should have noticed. Please report this.");
  }
}

void DebugAsserts::check_outputs(const std::vector<at::Tensor>& inputs,
                                 const std::vector<at::Tensor>& outputs) const {
  if (outputs.size() != outputs_.size()) {
    throw UserError("call", "the backend returned " + std::to_string(outputs.size()) +
                                " outputs, its graph has " + std::to_string(outputs_.size()) + ".");
  }
  const auto refuse = [&](const Expected& output, const std::string& problem) {
    throw UserError("call",
                    output.name + ": the backend returned something wrong: " + problem + ".");
  };
  for (size_t i = 0; i < outputs_.size(); ++i) {
    const Expected& expected = outputs_[i];
    if (!expected.is_defined) continue;
    const std::string problem = difference(expected.meta, outputs[i], /*with_strides=*/true);
    if (!problem.empty()) refuse(expected, problem);
    for (size_t k = 0; k < inputs.size(); ++k) {
      if (inputs_[k].memory != expected.memory && shares_memory(outputs[i], inputs[k]))
        refuse(expected, "it shares memory with " + inputs_[k].name);
    }
    for (size_t k = 0; k < i; ++k) {
      if (outputs_[k].is_defined && outputs_[k].memory != expected.memory &&
          shares_memory(outputs[i], outputs[k]))
        refuse(expected, "it shares memory with " + outputs_[k].name);
    }
  }
}

void DebugAsserts::check_tangents(const std::vector<at::Tensor>& tangents) const {
  for (size_t i = 0; i < tangents_.size(); ++i) {
    if (!tangents[i].defined()) continue;
    const std::string problem = difference(tangents_[i].meta, tangents[i], /*with_strides=*/false);
    if (problem.empty()) continue;
    throw InternalError("backward", tangents_[i].name + ": " + problem + ".");
  }
}

void DebugAsserts::check_gradients(const std::vector<at::Tensor>& gradients) const {
  if (gradients.size() != gradients_.size()) {
    throw UserError("backward", "the backend returned " + std::to_string(gradients.size()) +
                                    " gradients, its graph has " +
                                    std::to_string(gradients_.size()) + ".");
  }
  for (size_t i = 0; i < gradients_.size(); ++i) {
    if (!gradients[i].defined()) continue;
    const std::string problem =
        difference(gradients_[i].meta, gradients[i], /*with_strides=*/false);
    if (problem.empty()) continue;
    throw UserError("backward", gradients_[i].name +
                                    ": the backend returned something wrong: " + problem + ".");
  }
}

uint64_t contents_hash(const at::Tensor& tensor) {
  // A backward may be run inside a trace, which must not record this.
  const tracing::BelowTracing below;
  at::NoGradGuard no_grad;
  // Zeros that LibTorch's formulas make may have no memory.
  const at::Tensor stored = tensor._is_zerotensor() ? at::zeros_like(tensor) : tensor.detach();
  const at::Tensor elements = stored.cpu().contiguous().resolve_conj().resolve_neg();
  const std::string_view bytes(static_cast<const char*>(elements.const_data_ptr()),
                               elements.nbytes());
  return hash_bytes(bytes);
}

}  // namespace ahead::runtime
