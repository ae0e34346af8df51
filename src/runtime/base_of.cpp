#include "runtime/base_of.h"

#include <ATen/ops/empty.h>

#include "base/libtorch.h"

namespace ahead::runtime {
namespace {

at::Tensor tracked_base(const at::Tensor& tensor) {
  if (!tensor.is_inference() && tensor.is_view()) return at::Tensor(tensor._base());
  return tensor.requires_grad() ? tensor : at::Tensor();
}

at::Tensor whole_storage(const at::Tensor& tensor) {
  const auto bytes = static_cast<int64_t>(tensor.storage().nbytes());
  const int64_t numel = bytes / static_cast<int64_t>(tensor.element_size());
  at::Tensor whole =
      at::empty({0}, tensor.options().requires_grad(false)).set_(tensor.storage(), 0, {numel}, {1});
  // A write to it is one to the tensor.
  if (!tensor.is_inference() && !whole.is_inference()) {
    whole.unsafeGetTensorImpl()->set_version_counter(
        tensor.unsafeGetTensorImpl()->version_counter());
  }
  return whole;
}

}  // namespace

at::Tensor base_of(const CallPlan::Base& base, const std::vector<at::Tensor>& args) {
  const at::Tensor& first = args[static_cast<size_t>(base.arguments[0])];
  at::Tensor common;
  bool is_tracked = false;
  for (int32_t argument : base.arguments) {
    const at::Tensor& tensor = args[static_cast<size_t>(argument)];
    if (tensor.scalar_type() != first.scalar_type() || !tensor.is_alias_of(first)) return {};
    const at::Tensor candidate = tracked_base(tensor);
    if (!candidate.defined()) continue;
    if (is_tracked && !common.is_same(candidate)) return {};
    common = candidate;
    is_tracked = true;
  }
  if (!is_tracked) return whole_storage(first);
  for (int32_t argument : base.arguments) {
    const at::Tensor& tensor = args[static_cast<size_t>(argument)];
    if (!tensor.is_same(common) && !tracked_base(tensor).defined()) return {};
  }
  return common.scalar_type() == first.scalar_type() ? common : at::Tensor();
}

bool is_tracked(const CallPlan::Base& base, const std::vector<at::Tensor>& args) {
  return tracked_base(args[static_cast<size_t>(base.arguments[0])]).defined();
}

std::vector<int32_t> version_counters(const CallPlan::Base& base,
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
