#pragma once

#include "ahead/executable.h"
#include "native/slices/slices.h"

namespace ahead::native {

/// Runs a sub-graph slice by slice. `slice` runs SlicedCall::slice.
aot::Executable run_sliced(const SlicedCall& call, aot::Executable slice);

}  // namespace ahead::native
