#pragma once

namespace ahead::engine {

/// While one of these lives, LibTorch's engine calls run_backward instead of running backwards
/// itself, on all threads. When the last one ends, everything is as it was before.
///
/// On its way there the engine throws if another thread is on its way, too. So backwards pass a
/// gate, one at a time, which is open again as soon as run_backward is reached. While there is no
/// scope they take no lock.
class GateScope {
 public:
  GateScope();
  ~GateScope();
  GateScope(const GateScope&) = delete;
  GateScope& operator=(const GateScope&) = delete;
};

/// Lets the next backward pass. To be called when one has.
void open_gate();

}  // namespace ahead::engine
