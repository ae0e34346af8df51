#pragma once

#include <c10/util/ArrayRef.h>

#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

namespace ahead::engine {

/// Bytes that are written one after the other, and often.
class Key {
 public:
  void clear() { size_ = 0; }
  size_t size() const { return size_; }
  c10::ArrayRef<uint8_t> bytes() const { return {bytes_.data(), size_}; }

  template <class T>
  void put(const T& part) {
    static_assert(std::is_trivially_copyable_v<T>);
    put(&part, sizeof(T));
  }
  void put(const void* part, size_t count) {
    if (bytes_.size() - size_ < count) bytes_.resize(2 * bytes_.size() + count);
    std::memcpy(bytes_.data() + size_, part, count);
    size_ += count;
  }

 private:
  std::vector<uint8_t> bytes_;  ///< of which the first `size_` count
  size_t size_ = 0;
};

}  // namespace ahead::engine
