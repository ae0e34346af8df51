#pragma once

#include <bit>
#include <cstdint>

namespace ahead {

/// A number as it stands among integers.
inline int64_t bits_of(double number) {
  return std::bit_cast<int64_t>(number);
}

/// Whether a program made for one number is right for the other: not the same question as equality,
/// which takes 0.0 for -0.0 and no NaN for itself.
inline bool same_bits(double a, double b) {
  return bits_of(a) == bits_of(b);
}

}  // namespace ahead
