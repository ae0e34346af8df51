#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <memory>
#include <vector>

#include "ahead/graph.h"

namespace ahead::observe {

/// A call of an operator with an effect, and copies of what it returned.
struct EffectCall {
  const Operator* op;
  std::vector<at::Tensor> results;
};

/// While it exists, user code runs for the second time on this thread: effects that happened in the
/// first run do not happen again, and give what they gave then.
class EffectReplay {
 public:
  explicit EffectReplay(const std::vector<EffectCall>& calls);
  ~EffectReplay();
  EffectReplay(const EffectReplay&) = delete;
  EffectReplay& operator=(const EffectReplay&) = delete;

  /// Puts the results of the first run in place of the arguments. False: the call has to be made.
  static bool take(const c10::OperatorHandle& handle, torch::jit::Stack& stack);

 private:
  struct State;
  bool take_next(const Operator& op, torch::jit::Stack& stack);

  const std::vector<EffectCall>& calls_;
  EffectReplay* const outer_;
  size_t next_ = 0;
  std::unique_ptr<State> state_;
};

}  // namespace ahead::observe
