#pragma once

#include <string>
#include <vector>

#include "ahead/executable.h"
#include "ahead/export.h"

namespace ahead {

/// Makes a backend known under a name, for Options::backend. Throws UserError if there is one of
/// that name. The compiler must be safe to call from several threads. What it makes is called below
/// autograd and autocast, on tensors without history.
AHEAD_API void register_backend(const std::string& name, aot::GraphCompiler compiler);

/// The names of all backends, sorted.
AHEAD_API std::vector<std::string> backends();

}  // namespace ahead
