#pragma once

#include <functional>

namespace ahead::native {

/// Runs work later, on a thread of Ahead's, in the order in which it came. What throws is ignored.
///
/// When the program ends, what is running is waited for, after compilers that run are ended, and
/// the rest is dropped. A child of fork() has none of its parent's work and a thread of its own.
void run_in_background(std::function<void()> work);

}  // namespace ahead::native
