#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

namespace ahead::detail {

/// Objects that keep their address and go together. They lie one after the other in a few blocks of
/// memory, since a graph has many and is often read from end to end.
template <class T>
class Pool {
 public:
  Pool() = default;
  Pool(Pool&& other) noexcept
      : blocks_(std::exchange(other.blocks_, {})), size_(std::exchange(other.size_, 0)) {}
  Pool& operator=(Pool&& other) noexcept {
    std::swap(blocks_, other.blocks_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~Pool() {
    for (const Block& block : blocks_) {
      std::destroy_n(block.first, block.size);
      std::allocator<T>().deallocate(block.first, block.capacity);
    }
  }

  T& add() {
    if (blocks_.empty() || blocks_.back().size == blocks_.back().capacity) grow();
    Block& block = blocks_.back();
    T* place = std::construct_at(block.first + block.size);
    ++block.size;
    ++size_;
    return *place;
  }
  size_t size() const { return size_; }

 private:
  struct Block {
    T* first = nullptr;
    size_t capacity = 0;
    size_t size = 0;
  };
  static constexpr size_t kSmallest = 8;
  static constexpr size_t kLargest = 256;

  void grow() {
    const size_t capacity =
        blocks_.empty() ? kSmallest : std::min(2 * blocks_.back().capacity, kLargest);
    Block& block = blocks_.emplace_back();
    block.first = std::allocator<T>().allocate(capacity);
    block.capacity = capacity;
  }

  std::vector<Block> blocks_;
  size_t size_ = 0;
};

}  // namespace ahead::detail
