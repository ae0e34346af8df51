#pragma once

#include "fuzz/check.h"
#include "fuzz/program.h"

namespace ahead::fuzz {

/// Compiles the program with each partitioner, calls it three times with new arguments and what it
/// captures as the call before left it, and compares each call with eager mode.
Verdict check_compiled(const Program& program);

}  // namespace ahead::fuzz
