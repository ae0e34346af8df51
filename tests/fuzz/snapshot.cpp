#include "fuzz/snapshot.h"

#include <torch/csrc/autograd/variable.h>

#include "fuzz/eager.h"

namespace ahead::fuzz {
namespace {

size_t count_hooks(const at::Tensor& tensor) {
  namespace impl = torch::autograd::impl;
  if (!tensor.requires_grad()) return 0;
  const auto node = tensor.is_leaf() ? impl::grad_accumulator(tensor) : tensor.grad_fn();
  return impl::hooks(tensor).size() + node->tensor_pre_hooks().size() + node->pre_hooks().size() +
         node->post_hooks().size();
}

}  // namespace

Snapshot::Look Snapshot::look_at(const at::Tensor& tensor) {
  const auto* bytes = static_cast<const char*>(tensor.storage().data());
  return {{bytes, bytes + tensor.storage().nbytes()},
          static_cast<uint64_t>(tensor._version()),
          tensor.grad_fn().get(),
          tensor.requires_grad(),
          tensor.is_leaf() && tensor.grad().defined(),
          count_hooks(tensor)};
}

const char* Snapshot::compare(const Look& before, const Look& after) {
  if (before.memory != after.memory) return "contents";
  if (before.version != after.version) return "version counter";
  if (before.grad_fn != after.grad_fn) return "grad_fn";
  if (before.requires_grad != after.requires_grad) return "requires_grad";
  if (before.has_grad != after.has_grad) return ".grad";
  if (before.num_hooks != after.num_hooks) return "hooks";
  return nullptr;
}

Snapshot::Snapshot(const std::vector<MadeInput>& inputs) : random_state_(generator_state()) {
  for (const MadeInput& input : inputs) looks_.push_back(look_at(input.tensor));
}

std::string Snapshot::difference(const std::vector<MadeInput>& inputs) const {
  for (size_t i = 0; i < inputs.size(); ++i) {
    const char* changed = compare(looks_[i], look_at(inputs[i].tensor));
    if (changed != nullptr) return "x" + std::to_string(i) + ": " + changed;
  }
  return at::equal(random_state_, generator_state()) ? "" : "random number generator";
}

}  // namespace ahead::fuzz
