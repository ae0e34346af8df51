#pragma once

#include <string>
#include <vector>

#include "ahead/backend_traits.h"
#include "ahead/executable.h"
#include "ahead/export.h"

namespace ahead {

/// Makes a backend known under a name, for Options::backend. Throws UserError if there is one of
/// that name. The compiler must be safe to call from several threads, and take the graphs that the
/// traits say it takes. What it makes is called below autograd and autocast, on tensors without
/// history.
AHEAD_API void register_backend(const std::string& name, aot::GraphCompiler compiler,
                                BackendTraits traits = {});

/// The backend of those who name none: what the environment variable AHEAD_BACKEND says, or
/// "native".
AHEAD_API std::string default_backend();

/// The names of all backends, sorted.
AHEAD_API std::vector<std::string> backends();

}  // namespace ahead
