#pragma once

#include <cstdint>
#include <optional>

#include "ahead/graph.h"

namespace ahead::native {

/// A product of matrices of which one of the three sizes is at most four, and the dimension of that
/// size: `left` [rows, inner] times `right` [inner, columns]. Loops compute it faster than libraries
/// call themselves, and together with what is done to the operands or the result.
struct SmallProduct {
  enum class Short : uint8_t {
    Inner,    ///< each element is a sum of a few products; both operands must be in memory
    Rows,     ///< for each row a sum over the elements of `right`
    Columns,  ///< for each column a sum over the elements of `left`
  };
  Short which;
  int64_t rows, inner, columns;
};

/// Nothing if `product`, which is `aten.mm` or `aten.addmm`, has no such size, is none of floating
/// numbers of one dtype, or has factors.
std::optional<SmallProduct> small_product(const Node& product);

}  // namespace ahead::native
