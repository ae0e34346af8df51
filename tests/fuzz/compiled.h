#pragma once

#include "fuzz/check.h"
#include "fuzz/program.h"

namespace ahead::fuzz {

/// Compiles the program with each partitioner, calls it three times with new arguments and what it
/// captures as the call before left it, and compares each call with eager mode.
Verdict check_compiled(const Program& program);

/// The same once, in one of these ways, with kernels, whose numbers may be off by roundings.
/// Programs in which eager's own results hang on the last bits of their inputs count as
/// unsupported.
Verdict check_native(const Program& program);

/// Compiles the program once, calls it many times with arguments of other sizes and with other
/// numbers, and compares each call with eager mode. Sizes for which eager throws are left out.
Verdict check_sizes(const Program& program);

/// The same with all backwards captured, which eager's are not.
Verdict check_captured_sizes(const Program& program);

}  // namespace ahead::fuzz
