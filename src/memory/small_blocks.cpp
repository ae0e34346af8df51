#include "memory/small_blocks.h"

#include <c10/core/CPUAllocator.h>
#include <c10/core/alignment.h>

#include <cstdlib>
#include <iterator>
#include <utility>

namespace ahead::memory {
namespace {

constexpr size_t sizes[] = {64, 256, most_small_bytes};
constexpr size_t num_sizes = std::size(sizes);
/// More blocks of a size go back to the system.
constexpr int most_kept_blocks = 32;

struct Block {
  Block* next;
};

/// What a thread keeps of each size. Has no destructor, so that tensors may be freed after those of
/// the thread's other objects have run.
struct Kept {
  Block* first[num_sizes];
  int count[num_sizes];
  enum : uint8_t { New, Open, Closed } state;
};
thread_local Kept kept;

/// Gives a thread's blocks back when it ends.
struct AtEndOfThread {
  ~AtEndOfThread() {
    kept.state = Kept::Closed;
    for (Block*& first : kept.first) {
      while (first != nullptr) std::free(std::exchange(first, first->next));
    }
  }
};

void open() {
  static thread_local AtEndOfThread end;
  kept.state = Kept::Open;
}

template <size_t size>
void put_back(void* memory) {
  c10::profiledCPUMemoryReporter().Delete(memory);
  Kept& own = kept;
  if (own.state == Kept::New) open();
  if (own.state == Kept::Closed || own.count[size] >= most_kept_blocks) return std::free(memory);
  auto* const block = static_cast<Block*>(memory);
  block->next = own.first[size];
  own.first[size] = block;
  ++own.count[size];
}

constexpr c10::DeleterFnPtr deleters[num_sizes] = {put_back<0>, put_back<1>, put_back<2>};

}  // namespace

c10::DataPtr take_small_block(size_t bytes) {
  const size_t size = bytes <= sizes[0] ? 0 : bytes <= sizes[1] ? 1 : 2;
  Kept& own = kept;
  void* block = own.first[size];
  if (block != nullptr) {
    own.first[size] = own.first[size]->next;
    --own.count[size];
  } else {
    block = std::aligned_alloc(c10::gAlignment, sizes[size]);
    if (block == nullptr) return {};
  }
  c10::profiledCPUMemoryReporter().New(block, bytes);
  return {block, block, deleters[size], c10::Device(c10::DeviceType::CPU)};
}

}  // namespace ahead::memory
