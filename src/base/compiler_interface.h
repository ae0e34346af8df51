#pragma once

#include <mutex>

namespace ahead {

/// To be held while LibTorch's interface to a compiler of autograd nodes is set: there is one in a
/// process.
std::mutex& compiler_interface_mutex();

}  // namespace ahead
