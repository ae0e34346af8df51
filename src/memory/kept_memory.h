#pragma once

namespace ahead::memory {

/// While it lives, large CPU tensors that this thread makes lie in memory that stays with the
/// process when they are gone (Heap), and is used again by later programs. They may outlive it, and
/// may be freed by any thread. Does nothing where somebody has given LibTorch a CPU allocator of
/// their own.
class KeepMemory {
 public:
  KeepMemory();
  ~KeepMemory();
  KeepMemory(const KeepMemory&) = delete;
  KeepMemory& operator=(const KeepMemory&) = delete;

 private:
  const bool was_on_;
};

/// Whether what programs give back is kept for their next calls at all; see keep_at_most().
bool keeps_memory();

}  // namespace ahead::memory
