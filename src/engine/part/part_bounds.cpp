#include "engine/part/part_bounds.h"

#include <algorithm>

#include "engine/walk/chains.h"
#include "engine/walk/leaf.h"

namespace ahead::engine {
namespace {

/// User code runs between the two steps. Hooks on what a node returns are told what it got too.
bool are_apart(const Step& step, const Step& next) {
  return step.hooks.has(Hooks::After) || step.hooks.has(Hooks::Outputs) ||
         next.hooks.has(Hooks::Before) || next.hooks.has(Hooks::Outputs);
}

/// The group to which all belongs that hooks unpack for the step, if there is one.
uint32_t group_of(const Step& step, const Backward& backward) {
  if (step.num_hooked == 0) return HookedTensor::kAlone;
  const auto first = backward.hooked().begin() + step.first_hooked;
  const bool is_one = std::all_of(first, first + step.num_hooked, [&](const HookedTensor& hooked) {
    return hooked.group == first->group;
  });
  return is_one ? first->group : HookedTensor::kAlone;
}

}  // namespace

bool is_for_graphs(Step::Kind kind) {
  return kind != Step::Kind::Eager && kind != Step::Kind::Called;
}

bool begins_part(const std::vector<Step::Kind>& kinds, const std::vector<Step>& steps,
                 size_t begin) {
  if (kinds[begin] == Step::Kind::Traced) return true;
  return begin > 1 && is_for_graphs(kinds[begin]) && are_apart(steps[begin - 1], steps[begin]);
}

/// Hooks unpack for a step when it is reached, unless it is only to fetch what was made again with
/// that for the first step.
size_t end_of_part(const std::vector<Step::Kind>& kinds, const Backward& backward, size_t begin) {
  const std::vector<Step>& steps = backward.steps();
  const uint32_t group = group_of(steps[begin], backward);
  size_t end = begin + 1;
  for (; end < kinds.size() && is_for_graphs(kinds[end]); ++end) {
    if (are_apart(steps[end - 1], steps[end])) break;
    const bool is_fetched =
        group != HookedTensor::kAlone && group_of(steps[end], backward) == group;
    if (steps[end].num_hooked != 0 && !is_fetched) break;
  }
  return end;
}

size_t end_of_unpacked(size_t begin, size_t end, const Backward& backward,
                       const Gradients& gradients) {
  size_t known = begin + 1;
  while (known < end && gradients.is_unpacked(backward.steps()[known])) ++known;
  return known;
}

bool are_traceable(const Backward& backward, size_t begin, size_t end, const Gradients& gradients) {
  for (size_t i = begin; i < end; ++i) {
    const Step& step = backward.steps()[i];
    for (size_t place = step.first_place; place < step.first_place + step.num_places; ++place) {
      if (gradients.at(place).defined() && !is_plain_gradient(gradients.at(place))) return false;
    }
    for (size_t k = step.first_target; k < step.first_target + step.num_targets; ++k) {
      const int32_t target = backward.targets()[k];
      if (target == kNowhere) continue;
      const at::Tensor& waiting = gradients.at(static_cast<size_t>(target));
      if (waiting.defined() && !is_plain_gradient(waiting)) return false;
    }
  }
  return true;
}

std::vector<Step::Kind> first_kinds(const Backward& backward) {
  const std::vector<Step>& steps = backward.steps();
  std::vector<Step::Kind> kinds;
  kinds.reserve(steps.size());
  for (const Step& step : steps) kinds.push_back(step.kind);
  for (size_t i = 2; i < steps.size(); ++i) {
    if (!is_for_graphs(steps[i].kind) || are_apart(steps[i - 1], steps[i]) ||
        steps[i].num_hooked != 0)
      leave_chains_across(i, backward, kinds);
  }
  return kinds;
}

}  // namespace ahead::engine
