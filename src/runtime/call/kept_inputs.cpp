#include "runtime/call/kept_inputs.h"

#include <algorithm>

namespace ahead::runtime {
namespace {

/// What the backward is given, and where it leads.
template <class Keep>
void keep_for_backward(const BackwardPlan& backward, const Keep& keep) {
  for (int32_t input : backward.grad_inputs) keep(input);
  for (const BackwardPlan::Saved& saved : backward.saved) {
    if (saved.kind == BackwardPlan::Saved::Kind::Input ||
        saved.kind == BackwardPlan::Saved::Kind::Writable)
      keep(saved.index);
  }
  if (backward.derivatives == nullptr) return;
  for (const DifferentiableBackward::Need& need : backward.derivatives->needs()) {
    if (need.kind == DifferentiableBackward::Need::Kind::Input) keep(need.index);
  }
}

/// Whether something after the graph looks at arguments, or at all inputs.
bool needs_all(const CallPlan& plan) {
  const auto is_argument = [](const auto& step) {
    return step.source.kind == Source::Kind::Argument;
  };
  const Epilogue& epilogue = plan.epilogue;
  return plan.asserts != nullptr || !plan.prologue->bases.empty() || !epilogue.reshapes.empty() ||
         !epilogue.rebased_arguments.empty() || !epilogue.version_bumps.empty() ||
         std::any_of(epilogue.resets.begin(), epilogue.resets.end(), is_argument) ||
         std::any_of(epilogue.views.begin(), epilogue.views.end(), is_argument) ||
         std::any_of(epilogue.results.begin(), epilogue.results.end(), is_argument);
}

template <class Keep>
void keep_for_epilogue(const Epilogue& epilogue, const Keep& keep) {
  const auto keep_source = [&](const Source& source) {
    if (source.kind == Source::Kind::Input) keep(source.index);
  };
  for (const Epilogue::RequiresGradChange& change : epilogue.requires_grad_changes)
    keep(change.input);
  for (const Epilogue::Write& write : epilogue.writes) keep(write.input);
  for (const Epilogue::Reset& reset : epilogue.resets) {
    keep(reset.input);
    keep_source(reset.source);
  }
  for (const Epilogue::NewGrad& grad : epilogue.new_grads) keep(grad.input);
  for (const ViewStep& view : epilogue.views) keep_source(view.source);
  for (const Epilogue::Result& result : epilogue.results) keep_source(result.source);
}

}  // namespace

std::vector<bool> find_kept_inputs(const CallPlan& plan) {
  if (needs_all(plan)) return {};
  std::vector<bool> kept(plan.prologue->inputs.size(), false);
  const auto keep = [&](int32_t input) { kept[static_cast<size_t>(input)] = true; };
  if (plan.backward.program != nullptr) keep_for_backward(plan.backward, keep);
  keep_for_epilogue(plan.epilogue, keep);
  return kept;
}

}  // namespace ahead::runtime
