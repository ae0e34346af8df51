#pragma once

#include <c10/core/ScalarType.h>
#include <c10/util/SmallVector.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "native/loops/term.h"

namespace ahead::native {

using Sizes = c10::SmallVector<int64_t, 4>;

/// Memory that a kernel reads or writes: an argument or a result.
struct Buffer {
  at::ScalarType dtype;
  bool is_result;
  int32_t index;        ///< among the arguments, or among the results
  Sizes rows, columns;  ///< how far apart elements lie along each axis
  int64_t picked = 0;   ///< and along the dimension of which LoadAt names a place
  int64_t offset = 0;   ///< where the first element lies, counted from that of the tensor

  bool operator==(const Buffer& other) const = default;
};

/// A program over rows and columns, each a nest of axes, the innermost last. All rows do the same
/// and may run at once; sums along the columns of a row end before what depends on them begins.
struct Kernel {
  struct Store {
    TermId term;
    int32_t buffer;
  };
  /// A sum over all rows: of each column, of all columns, or of what rows have without columns. Or
  /// one for each element of the result, over the axes that the result lacks, of which the
  /// innermost of the columns is one.
  struct Sum {
    enum class Kind : uint8_t { EachColumn, All, Rows, EachElement };
    Kind kind;
    TermId term;
    int32_t buffer;     ///< -1: only others need it
    double divisor;     ///< what is written is the sum divided by this
    int32_t over = -1;  ///< and by this one of the sums, which has one number; -1: by none
  };
  /// The whole numbers of an argument must lie in [0, size), or be `other`, for the kernel to be
  /// right.
  struct Bound {
    int32_t argument;
    int64_t size;
    std::optional<int64_t> other;
  };

  /// What one of the sums counts must not be; `fail` throws ATen's error.
  struct Demand {
    int32_t sum;
    void (*fail)();
  };

  std::string name;     ///< made of the operators
  bool strict = false;  ///< functions are those of the library that ATen calls
  Sizes rows, columns;
  std::vector<Buffer> buffers;
  std::vector<Term> terms;  ///< operands stand before what uses them
  std::vector<Store> stores;
  std::vector<Sum> sums;
  std::vector<Bound> bounds;
  std::vector<Demand> demands;

  /// How many numbers a sum has.
  int64_t length(const Sum& sum) const;
  int64_t num_rows() const;
  int64_t num_columns() const;
  /// The program as text, for people.
  std::string str() const;
};

}  // namespace ahead::native
