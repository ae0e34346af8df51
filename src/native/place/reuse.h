#pragma once

#include <cstdint>
#include <vector>

#include "native/loops/kernel.h"

namespace ahead::native {

/// For each result of a kernel, the arguments whose memory it may be written to, should nobody else
/// need that: whatever threads work it off, each element of the argument is read for the last time
/// before the element of the result that lies in its place is written.
std::vector<std::vector<int32_t>> overwritable_arguments(const Kernel& kernel, size_t num_results);

}  // namespace ahead::native
