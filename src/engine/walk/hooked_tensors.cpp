#include "engine/walk/hooked_tensors.h"

#include <algorithm>

#include "base/front_engine.h"
#include "base/private_members.h"
#include "tensors/saved_variables.h"

namespace ahead::engine {

using torch::autograd::SavedVariable;

uint32_t HookedTensors::add(torch::autograd::Node& node) {
  const auto lock = lock_node(node);
  const size_t before = all_.size();
  uint32_t position = 0;
  for_each_saved(node, [&](SavedVariable& saved) {
    if (saved.has_hooks()) all_.push_back({position, group_of(saved)});
    ++position;
  });
  return static_cast<uint32_t>(all_.size() - before);
}

void HookedTensors::clear() {
  all_.clear();
  groups_.clear();
}

uint32_t HookedTensors::group_of(SavedVariable& saved) {
  const auto* grouped = dynamic_cast<const GroupedHooks*>(hooks_of(saved).get());
  if (grouped == nullptr) return HookedTensor::kAlone;
  const auto known = std::find(groups_.rbegin(), groups_.rend(), grouped->group());
  if (known != groups_.rend()) return static_cast<uint32_t>(groups_.rend() - known) - 1;
  groups_.push_back(grouped->group());
  return static_cast<uint32_t>(groups_.size()) - 1;
}

bool for_each_hooked(torch::autograd::Node& node, const std::vector<HookedTensor>& all,
                     size_t first, size_t count,
                     c10::function_ref<void(SavedVariable&, size_t)> visit) {
  const size_t end = first + count;
  size_t next = first;
  uint32_t position = 0;
  for_each_saved(node, [&](SavedVariable& saved) {
    if (next < end && all[next].position == position++) visit(saved, next++);
  });
  return next == end;
}

HookedAside::HookedAside(torch::autograd::Node& node) {
  for_each_saved(node, [&](SavedVariable& saved) {
    if (!saved.has_hooks()) return;
    aside_.emplace_back(&saved, std::move(saved));
    saved = SavedVariable();
  });
}

HookedAside::~HookedAside() {
  for (auto& [place, saved] : aside_) *place = std::move(saved);
}

}  // namespace ahead::engine
