#pragma once

#include <mutex>

namespace ahead {

/// To be held while a PyCompilerInterface, LibTorch's door for a compiler of autograd nodes, is
/// set: a process has room for one.
std::mutex& compiler_interface_mutex();

}  // namespace ahead
