#pragma once

#include <c10/core/Allocator.h>

#include <cstddef>

namespace ahead::memory {

/// The largest tensor that is kept by its thread.
constexpr size_t most_small_bytes = 1024;

/// Memory for a tensor of at most that many bytes, aligned to 64. Each thread keeps some blocks that
/// tensors gave back, for its next ones; the system's allocator takes longer to align a small block
/// than a small kernel to run. Any thread may free it. Null if the system has no memory left.
c10::DataPtr take_small_block(size_t bytes);

}  // namespace ahead::memory
