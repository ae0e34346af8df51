#pragma once

#include <string>

#include "ahead/backend.h"

namespace ahead::runtime {

/// The backend of that name. Throws UserError, naming those there are, if it is not known.
aot::GraphCompiler find_backend(const std::string& name);

/// What the backend of that name said of itself. Throws as find_backend() does.
BackendTraits traits_of(const std::string& name);

/// Wraps a compiler of the user's: its executables get tensors that do not require grad, and run
/// below autograd and autocast.
aot::GraphCompiler below_autograd(aot::GraphCompiler compiler);

}  // namespace ahead::runtime
