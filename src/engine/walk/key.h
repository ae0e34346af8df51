#pragma once

#include <c10/util/ArrayRef.h>

#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

namespace ahead::engine {

/// Bytes that are written one after the other, and often; or compared with those written before.
class Key {
 public:
  void clear() {
    size_ = 0;
    is_comparing_ = false;
  }
  /// From now on, what is put is compared with what was put since the beginning.
  void compare() {
    compared_ = 0;
    is_comparing_ = is_same_ = true;
  }
  /// Whether all that was put since compare() is what was put before, as far as it goes.
  bool is_same_so_far() const { return is_same_; }
  bool is_same() const { return is_same_ && compared_ == size_; }

  size_t size() const { return size_; }
  c10::ArrayRef<uint8_t> bytes() const { return {bytes_.data(), size_}; }

  template <class T>
  void put(const T& part) {
    static_assert(std::is_trivially_copyable_v<T>);
    put(&part, sizeof(T));
  }
  template <class T>
  void put(T* address) {
    put(reinterpret_cast<uintptr_t>(address));
  }
  [[gnu::always_inline]] void put(const void* part, size_t count) {
    if (is_comparing_) {
      is_same_ = is_same_ && compared_ + count <= size_ &&
                 std::memcmp(bytes_.data() + compared_, part, count) == 0;
      compared_ += count;
    } else {
      append(part, count);
    }
  }

 private:
  void append(const void* part, size_t count) {
    if (bytes_.size() - size_ < count) bytes_.resize(2 * bytes_.size() + count);
    std::memcpy(bytes_.data() + size_, part, count);
    size_ += count;
  }

  std::vector<uint8_t> bytes_;  ///< of which the first `size_` count
  size_t size_ = 0;
  size_t compared_ = 0;
  bool is_comparing_ = false;
  bool is_same_ = true;
};

}  // namespace ahead::engine
