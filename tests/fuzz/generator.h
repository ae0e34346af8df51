#pragma once

#include "fuzz/program.h"

namespace ahead::fuzz {

/// A random program, always the same for the same seed. All but a few run in eager mode, backward
/// included.
Program generate(uint64_t seed);

}  // namespace ahead::fuzz
