#include "observe/recorder/effect_replay.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/clone.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include "observe/recorder/fallback.h"
#include "observe/recorder/recorder.h"

namespace ahead::observe {
namespace {

thread_local EffectReplay* innermost_replay = nullptr;

}  // namespace

struct EffectReplay::State {
  c10::impl::IncludeDispatchKeyGuard key{recording_key};
};

EffectReplay::EffectReplay(const std::vector<EffectCall>& calls)
    : calls_(calls), outer_(innermost_replay) {
  if (calls_.empty()) return;
  ensure_recording();
  state_ = std::make_unique<State>();
  innermost_replay = this;
}

EffectReplay::~EffectReplay() {
  if (state_ != nullptr) innermost_replay = outer_;
}

bool EffectReplay::take(const c10::OperatorHandle& handle, torch::jit::Stack& stack) {
  return innermost_replay != nullptr && innermost_replay->take_next(Operator::of(handle), stack);
}

/// Effects that the kernel of another one had stand before that one.
bool EffectReplay::take_next(const Operator& op, torch::jit::Stack& stack) {
  size_t found = next_;
  while (found < calls_.size() && calls_[found].op != &op) ++found;
  if (found == calls_.size()) return false;
  next_ = found + 1;
  stack.resize(stack.size() - op.schema().arguments().size());
  const RecordingPause unseen;
  const at::NoGradGuard no_grad;
  // The code may write to it.
  for (const at::Tensor& result : calls_[found].results) stack.emplace_back(at::clone(result));
  return true;
}

}  // namespace ahead::observe
