#include <ATen/core/LegacyTypeDispatch.h>

#include "runtime/node/compiled_node.h"

/// What a compiled function's backward writes to tensors that others hold.
namespace ahead::runtime {

using torch::autograd::variable_list;

namespace {

void raise_version_of(const at::Tensor& tensor, uint64_t by) {
  if (tensor.is_inference()) return;
  c10::VariableVersion counter = tensor.unsafeGetTensorImpl()->version_counter();
  counter.set_version(static_cast<int64_t>(counter.current_version() + by));
}

}  // namespace

void CompiledNode::note_versions() {
  for (Writable& writable : writable_) writable.version = writable.tensor._version();
}

at::Tensor CompiledNode::unpack_writable(const BackwardPlan::Saved& saved) const {
  const Writable& writable = writable_[static_cast<size_t>(saved.place)];
  for (const BackwardPlan::Write& write : plan_->backward.writes) {
    if (&plan_->backward.saved[static_cast<size_t>(write.saved)] != &saved || !write.is_checked)
      continue;
    TORCH_CHECK(writable.tensor._version() == writable.version,
                "one of the variables needed for gradient computation has been modified by an "
                "inplace operation: ",
                TensorMeta::of(writable.tensor).str(), ", which the backward of ", plan_->name,
                " reads and writes to, is at version ", writable.tensor._version(),
                "; expected version ", writable.version, " instead.");
  }
  return writable.tensor;
}

void CompiledNode::check_may_write() const {
  for (const BackwardPlan::Write& write : plan_->backward.writes) {
    TORCH_CHECK(!write.requires_grad,
                "aot_autograd does not support input mutations with requires_grad in backward for "
                "create_graph=True");
  }
}

/// Runs a backward graph, and puts right what it cannot do itself where it writes to tensors.
variable_list CompiledNode::run(const BackwardVariants::Part& part, variable_list&& gradients) {
  if (part.writes.empty()) return part.run(arguments(part, std::move(gradients)));
  const variable_list given = gradients;
  std::vector<at::Tensor> args = arguments(part, std::move(gradients));
  const std::vector<at::Tensor> laid_out(args.end() - static_cast<ptrdiff_t>(given.size()),
                                         args.end());
  variable_list results = part.run(std::move(args));
  finish_writes(part, given, laid_out);
  return results;
}

void CompiledNode::finish_writes(const BackwardVariants::Part& part, const variable_list& gradients,
                                 const std::vector<at::Tensor>& laid_out) const {
  for (const BackwardPlan::Write& write : plan_->backward.writes) {
    const auto index = static_cast<size_t>(write.saved);
    if (!part.writes[index]) continue;
    const auto place = static_cast<size_t>(plan_->backward.saved[index].place);
    raise_version_of(writable_[place].tensor, write.version_bumps);
  }
  for (const BackwardPlan::TangentWrite& write : plan_->backward.tangent_writes) {
    const auto index = static_cast<size_t>(write.tangent);
    if (!part.writes[plan_->backward.saved.size() + index]) continue;
    if (!gradients[index].is_same(laid_out[index])) {
      at::AutoDispatchBelowADInplaceOrView below_autograd;
      gradients[index].copy_(laid_out[index]);
    }
    raise_version_of(gradients[index], write.version_bumps);
  }
}

}  // namespace ahead::runtime
