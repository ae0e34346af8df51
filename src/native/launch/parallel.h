#pragma once

#include <c10/util/FunctionRef.h>

#include <cstdint>

namespace ahead::native {

/// Calls work(begin, end) for parts of [0, count), each of `grain` or more, on the threads that
/// LibTorch's own operators use.
void in_parallel(int64_t count, int64_t grain, c10::function_ref<void(int64_t, int64_t)> work);

}  // namespace ahead::native
