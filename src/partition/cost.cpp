#include "partition/cost.h"

#include <c10/core/ScalarType.h>

namespace ahead::partition {

int64_t storage_bytes(const TensorMeta& meta) {
  int64_t extent = 1;
  for (size_t i = 0; i < meta.sizes.size(); ++i) {
    if (meta.sizes[i] == 0) return 0;
    extent += (meta.sizes[i] - 1) * meta.strides[i];
  }
  return extent * static_cast<int64_t>(c10::elementSize(meta.dtype));
}

}  // namespace ahead::partition
