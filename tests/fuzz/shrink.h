#pragma once

#include <functional>

#include "fuzz/program.h"

namespace ahead::fuzz {

/// Makes a program smaller and plainer as long as `fails` holds for it, trying at most `tries`
/// candidates.
Program shrink(Program program, const std::function<bool(const Program&)>& fails, int tries = 600);

}  // namespace ahead::fuzz
