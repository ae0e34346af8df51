#pragma once

#include <bit>
#include <cstdint>

namespace ahead {

/// Whether a program made for one number is right for the other: not the same question as equality,
/// which takes 0.0 for -0.0 and no NaN for itself.
inline bool same_bits(double a, double b) {
  return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b);
}

}  // namespace ahead
