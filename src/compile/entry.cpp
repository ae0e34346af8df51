#include "compile/entry.h"

#include <algorithm>

namespace ahead::detail {
namespace {

template <class Visit>
void for_each_captured(const runtime::CallPlan& plan, Visit&& visit) {
  size_t index = 0;
  for (const runtime::CallPlan::Input& input : plan.inputs) {
    if (input.kind == runtime::CallPlan::Input::Kind::Captured) visit(index++, input.captured);
  }
}

}  // namespace

void Entry::count_owners() {
  if (owners.empty()) {
    size_t count = 0;
    for_each_captured(*plan, [&](size_t, const at::Tensor&) { ++count; });
    owners = std::vector<std::atomic<size_t>>(count);
  }
  for_each_captured(*plan, [&](size_t i, const at::Tensor& tensor) {
    owners[i].store(tensor.use_count(), std::memory_order_relaxed);
  });
}

bool Entry::is_stale() const {
  bool stale = false;
  for_each_captured(*plan,
                    [&](size_t, const at::Tensor& tensor) { stale |= tensor.use_count() == 1; });
  return stale;
}

bool Entry::lost_an_owner() const {
  bool lost = false;
  for_each_captured(*plan, [&](size_t i, const at::Tensor& tensor) {
    lost |= tensor.use_count() < owners[i].load(std::memory_order_relaxed);
  });
  return lost;
}

}  // namespace ahead::detail
