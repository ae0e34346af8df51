// Compiled with OpenMP, as LibTorch is: without it at::parallel_for runs on one thread.
#include "native/launch/parallel.h"

#include <ATen/Parallel.h>

namespace ahead::native {

void in_parallel(int64_t count, int64_t grain, c10::function_ref<void(int64_t, int64_t)> work) {
  at::parallel_for(0, count, grain, work);
}

}  // namespace ahead::native
