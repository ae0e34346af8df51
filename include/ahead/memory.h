#pragma once

#include <cstddef>

namespace ahead::memory {

/// The memory in which compiled programs keep their large CPU tensors, in bytes.
struct KeptMemory {
  size_t in_use = 0;       ///< taken by tensors now
  size_t most_in_use = 0;  ///< the most at once, since the start or release_kept()
  size_t kept = 0;         ///< free, and kept for later calls
};

KeptMemory kept_memory();

/// For keep_at_most(): as much as was in use at once.
inline constexpr size_t as_much_as_was_in_use = static_cast<size_t>(-1);

/// How much memory that tensors of compiled programs gave back stays with the process, for their
/// next calls; whole segments (32 MB or more) beyond that go back to the system. 0: none, such
/// tensors are made by LibTorch's allocator. By default `as_much_as_was_in_use`.
void keep_at_most(size_t bytes);

/// Gives what is kept and not in use back to the system, before a phase of a program that needs the
/// memory for something else.
void release_kept();

}  // namespace ahead::memory
