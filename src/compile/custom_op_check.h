#pragma once

#include "ahead/executable.h"
#include "ahead/options.h"

namespace ahead::runtime {

/// A compiler whose graphs, when they first run, look whether custom operators return new memory
/// where their schemas say so. Whatever the compiler, it has to call these operators through
/// LibTorch's dispatcher to be seen.
aot::GraphCompiler with_custom_op_check(aot::GraphCompiler compiler, SchemaCheck check);

}  // namespace ahead::runtime
