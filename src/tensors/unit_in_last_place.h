#pragma once

#include <c10/core/ScalarType.h>

#include <limits>

namespace ahead {

/// How far apart numbers of a floating-point dtype lie from 1 to 2; of other dtypes as of float32.
inline double unit_in_last_place(at::ScalarType dtype) {
  switch (dtype) {
    case at::kDouble:
      return std::numeric_limits<double>::epsilon();
    case at::kHalf:
      return 0x1p-10;
    case at::kBFloat16:
      return 0x1p-7;
    default:
      return std::numeric_limits<float>::epsilon();
  }
}

}  // namespace ahead
