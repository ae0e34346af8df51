#include "memory/kept_memory.h"

#include <c10/core/CPUAllocator.h>

#include <atomic>
#include <cstring>

#include "ahead/memory.h"
#include "memory/heap.h"
#include "memory/scratch.h"
#include "memory/small_blocks.h"

namespace ahead::memory {
namespace {

/// The system's allocator serves smaller blocks without asking the system for pages; the smallest
/// are kept by their threads.
constexpr size_t kSmallest = size_t{64} << 10;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kIsSanitized = true;  // which would not see what is used after it was freed
#else
constexpr bool kIsSanitized = false;
#endif

thread_local bool is_on = false;
std::atomic<bool> is_wanted{!kIsSanitized};

/// Tensors are freed by destructors of static objects too, so it is never destroyed.
Heap& heap() {
  static Heap* const made = new Heap;
  return *made;
}

/// Takes what programs ask for from the heap and everything else from LibTorch's own allocator.
class Allocator final : public c10::Allocator {
 public:
  explicit Allocator(c10::Allocator* others) : others_(others) {}

  c10::DataPtr allocate(size_t bytes) override {
    if (!is_on) return others_->allocate(bytes);
    if (bytes <= most_small_bytes && bytes != 0) {
      if (c10::DataPtr block = take_small_block(bytes)) return block;
    }
    void* block = bytes < kSmallest ? nullptr : heap().take(bytes);
    if (block == nullptr) return others_->allocate(bytes);
    c10::profiledCPUMemoryReporter().New(block, bytes);
    return {block, block, &free_block, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_any; }
  void copy_data(void* target, const void* source, size_t count) const override {
    std::memcpy(target, source, count);
  }

 private:
  static void free_block(void* block) {
    c10::profiledCPUMemoryReporter().Delete(block);
    heap().put_back(block);
  }
  /// For those who keep a bare pointer, which does not say where it came from.
  static void free_any(void* block) {
    if (heap().owns(block)) return free_block(block);
    c10::GetDefaultCPUAllocator()->raw_deleter()(block);
  }

  c10::Allocator* const others_;
};

/// Stands in front of LibTorch's allocator from the first program on. False: it is somebody else's.
bool is_in_place() {
  static const bool is_ours = [] {
    c10::Allocator* const before = c10::GetCPUAllocator();
    if (before != c10::GetDefaultCPUAllocator()) return false;
    c10::SetCPUAllocator(new Allocator(before));
    return true;
  }();
  return is_ours;
}

}  // namespace

KeepMemory::KeepMemory() : was_on_(is_on) {
  is_on = is_wanted.load(std::memory_order_relaxed) && is_in_place();
}

KeepMemory::~KeepMemory() {
  is_on = was_on_;
}

bool keeps_memory() {
  return is_wanted.load(std::memory_order_relaxed);
}

KeptMemory kept_memory() {
  const Heap::Counts counts = heap().counts();
  return {counts.in_use, counts.most_in_use, counts.mapped - counts.in_use + kept_scratch()};
}

void keep_at_most(size_t bytes) {
  is_wanted = bytes != 0 && !kIsSanitized;
  heap().keep_at_most(bytes);
}

void release_kept() {
  heap().release();
}

}  // namespace ahead::memory
