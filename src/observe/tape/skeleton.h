#pragma once

#include <cstdint>

#include "observe/tape/tape.h"

namespace ahead::observe {

/// Equal for recordings that differ in numbers only: of sizes, or that operators are given. Others
/// are rarely equal.
uint64_t skeleton_of(const Tape& tape);

}  // namespace ahead::observe
