#include "runtime/call/base_of.h"

#include <ATen/ops/empty.h>

#include "base/libtorch.h"

namespace ahead::runtime {
namespace {

bool is_view(const at::Tensor& tensor) {
  return !tensor.is_inference() && tensor.is_view();
}

at::Tensor base_or_itself(const at::Tensor& tensor) {
  return is_view(tensor) ? at::Tensor(tensor._base()) : tensor;
}

at::Tensor whole_storage(const at::Tensor& tensor) {
  const auto bytes = static_cast<int64_t>(tensor.storage().nbytes());
  const int64_t numel = bytes / static_cast<int64_t>(tensor.element_size());
  at::Tensor whole =
      at::empty({0}, tensor.options().requires_grad(false)).set_(tensor.storage(), 0, {numel}, {1});
  // A write to the whole storage raises the version of the tensor.
  if (!tensor.is_inference() && !whole.is_inference()) {
    whole.unsafeGetTensorImpl()->set_version_counter(
        tensor.unsafeGetTensorImpl()->version_counter());
  }
  return whole;
}

}  // namespace

at::Tensor base_of(const Prologue::Base& base, const std::vector<at::Tensor>& args) {
  const at::Tensor& first = args[static_cast<size_t>(base.arguments[0])];
  at::Tensor common = base_or_itself(first), with_gradient;
  bool is_common = true, any_view = false;
  for (int32_t argument : base.arguments) {
    const at::Tensor& tensor = args[static_cast<size_t>(argument)];
    if (tensor.scalar_type() != first.scalar_type() || !tensor.is_alias_of(first)) return {};
    const at::Tensor candidate = base_or_itself(tensor);
    is_common &= candidate.is_same(common);
    any_view |= is_view(tensor);
    if (!tensor.requires_grad()) continue;
    if (with_gradient.defined() && !with_gradient.is_same(candidate)) return {};
    with_gradient = candidate;
  }
  if (!with_gradient.defined() && !(is_common && any_view)) return whole_storage(first);
  if (with_gradient.defined()) common = with_gradient;
  return common.scalar_type() == first.scalar_type() ? common : at::Tensor();
}

std::vector<bool> tracked_by(const at::Tensor& tensor, const Prologue::Base& base,
                             const std::vector<at::Tensor>& args) {
  std::vector<bool> tracked;
  for (int32_t argument : base.arguments)
    tracked.push_back(base_or_itself(args[static_cast<size_t>(argument)]).is_same(tensor));
  return tracked;
}

std::vector<int32_t> version_counters(const Prologue::Base& base,
                                      const std::vector<at::Tensor>& args) {
  std::vector<int32_t> counters;
  for (int32_t argument : base.arguments) {
    counters.push_back(argument);
    for (int32_t earlier : base.arguments) {
      if (earlier == argument) break;
      if (!share_version_counter(args[static_cast<size_t>(earlier)],
                                 args[static_cast<size_t>(argument)])) {
        continue;
      }
      counters.back() = earlier;
      break;
    }
  }
  return counters;
}

}  // namespace ahead::runtime
