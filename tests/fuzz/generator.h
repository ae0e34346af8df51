#pragma once

#include "fuzz/program.h"

namespace ahead::fuzz {

/// How often inputs share memory with each other.
enum class Sharing : uint8_t { Seldom, Often };

/// A random program, always the same for the same seed. All but a few run in eager mode, backward
/// included.
Program generate(uint64_t seed, Sharing sharing = Sharing::Seldom);

}  // namespace ahead::fuzz
