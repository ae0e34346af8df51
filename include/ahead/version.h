#pragma once

#include "ahead/export.h"

/// The version of these headers; the build reads it from here.
#define AHEAD_VERSION_MAJOR 0
#define AHEAD_VERSION_MINOR 1
#define AHEAD_VERSION_PATCH 0

namespace ahead {

/// Returns the version of the loaded library as "major.minor.patch". It differs from the macros
/// above when a program runs with another library than it was compiled for.
AHEAD_API const char* version() noexcept;

}  // namespace ahead
