#pragma once

#include <cstdint>

#include "ahead/graph.h"

namespace ahead::partition {

/// The memory from a tensor's first element to its last, in bytes.
int64_t storage_bytes(const TensorMeta& meta);

}  // namespace ahead::partition
