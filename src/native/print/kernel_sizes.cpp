#include "native/print/kernel_sizes.h"

#include "native/print/type_words.h"

namespace ahead::native {

KernelSizes::KernelSizes(const Kernel& kernel)
    : num_rows_(kernel.rows.size()), num_axes_(num_rows_ + kernel.columns.size()) {
  const auto append = [&](const Sizes& more) { all_.insert(all_.end(), more.begin(), more.end()); };
  append(kernel.rows);
  append(kernel.columns);
  for (const Buffer& buffer : kernel.buffers) {
    append(buffer.rows);
    append(buffer.columns);
  }
  first_sum_ = all_.size();
  for (const Kernel::Sum& sum : kernel.sums) {
    const Type type = kernel.terms[static_cast<size_t>(sum.term)].type;
    all_.push_back(sum_bytes_);
    sum_bytes_ += (kernel.length(sum) * words_for(type).bytes + 63) / 64 * 64;
  }
  row_buffer_at_ = all_.size();
  // Room for whole vectors; not a power of two, at which buffers would share lines of the cache.
  row_buffer_bytes_ = (kernel.num_columns() * 8 + 63) / 64 * 64 + 64;
  all_.push_back(row_buffer_bytes_);
  for (const Buffer& buffer : kernel.buffers) all_.push_back(buffer.picked);
}

}  // namespace ahead::native
