#pragma once

#include <string>

namespace ahead {

/// The value of an environment variable; empty if it is not set. Nothing else in Ahead reads the
/// environment.
std::string environment(const char* name);

}  // namespace ahead
