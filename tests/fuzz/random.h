#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace ahead::fuzz {

/// A small random source whose numbers are the same on every machine.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  uint64_t next() {
    state_ += 0x9e3779b97f4a7c15;
    uint64_t bits = state_;
    bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9;
    bits = (bits ^ (bits >> 27)) * 0x94d049bb133111eb;
    return bits ^ (bits >> 31);
  }
  /// A number in [low, high].
  int64_t between(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(next() % static_cast<uint64_t>(high - low + 1));
  }
  /// A position in something of this size, which must not be zero.
  size_t below(size_t size) { return static_cast<size_t>(next() % size); }
  /// A number in [0, 1).
  double fraction() { return static_cast<double>(next() >> 11) * 0x1p-53; }
  bool chance(double probability) { return fraction() < probability; }
  template <class T>
  const T& pick(const std::vector<T>& from) {
    return from[below(from.size())];
  }

 private:
  uint64_t state_;
};

}  // namespace ahead::fuzz
