#pragma once

namespace ahead::engine {

/// Has LibTorch's engine call run_backward instead of running backwards itself, from now on and on
/// all threads.
///
/// On its way there the engine throws if another thread is on its way, too. So backwards pass a
/// gate, one at a time, which is open again as soon as run_backward is reached.
void install_gate();

/// Lets the next backward pass. To be called when one has.
void open_gate();

}  // namespace ahead::engine
