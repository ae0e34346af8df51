#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "native/loops/kernel.h"

namespace ahead::native {

/// The whole numbers that a kernel is called with (PrintedKernel::sizes), and how its text names
/// each of them.
class KernelSizes {
 public:
  explicit KernelSizes(const Kernel& kernel);

  const std::vector<int64_t>& all() const { return all_; }
  int64_t sum_bytes() const { return sum_bytes_; }
  int64_t row_buffer_bytes() const { return row_buffer_bytes_; }

  std::string row_axis(size_t axis) const { return name(axis); }
  std::string column_axis(size_t axis) const { return name(num_rows_ + axis); }
  /// How far apart the elements of a buffer lie along an axis.
  std::string along_rows(size_t buffer, size_t axis) const {
    return name(num_axes_ * (1 + buffer) + axis);
  }
  std::string along_columns(size_t buffer, size_t axis) const {
    return along_rows(buffer, num_rows_ + axis);
  }
  std::string begin_of_sum(size_t sum) const { return name(first_sum_ + sum); }
  /// The bytes from one row buffer to the next.
  std::string row_buffer() const { return name(row_buffer_at_); }
  /// Buffer::picked.
  std::string picked(size_t buffer) const { return name(row_buffer_at_ + 1 + buffer); }

 private:
  static std::string name(size_t index) { return "n[" + std::to_string(index) + "]"; }

  const size_t num_rows_, num_axes_;
  std::vector<int64_t> all_;
  size_t first_sum_ = 0, row_buffer_at_ = 0;
  int64_t sum_bytes_ = 0, row_buffer_bytes_ = 0;
};

}  // namespace ahead::native
