#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "native/loops/kernel.h"

namespace ahead::native {

/// A kernel as C++, and what a call has to pass it.
///
/// All sizes, distances and most numbers are arguments, so that kernels for other sizes have the
/// same text. The function is
///
///     void name(char* const* buffers, const long* sizes, const double* numbers,
///               long row, long rows_end, long first_column, long num_columns,
///               char* sums, char* scratch)
///
/// and works off rows `row` to `rows_end`. `buffers` has the first element of each Buffer. Where
/// there is one axis of columns and no sum along them, it may be called for some columns only.
struct PrintedKernel {
  std::string name;  ///< of the function
  std::string text;  ///< without the words that it needs; see with_prelude
  int lanes = 0;
  /// In this order: the sizes of row axes, those of column axes, for each buffer how far apart
  /// elements are along these, for each sum where it begins in `sums` (in bytes), the bytes from
  /// one row buffer in `scratch` to the next, and Buffer::picked of each buffer.
  std::vector<int64_t> sizes;
  std::vector<double> numbers;
  int64_t sum_bytes = 0;      ///< of `sums`, which a call adds to
  int64_t scratch_bytes = 0;  ///< of `scratch`
  bool may_divide_columns = false;
};

/// Prints a kernel for vectors of so many bytes.
PrintedKernel print_kernel(const Kernel& kernel, int vector_bytes);

}  // namespace ahead::native
