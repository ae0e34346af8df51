#pragma once

#include <ATen/core/boxing/KernelFunction.h>

#include <string>

#include "trace/eager/departures.h"

namespace ahead::tracing {

/// What is traced instead of an `aten` operator (named with its overload, as in its schema): for
/// operators whose own implementation reads values that only its checks depend on, or which
/// LibTorch functionalises with another result. It has the operator's signature. Null: traced as it
/// is.
const c10::KernelFunction* find_decomposition(const std::string& name);

/// One for each operator that find_decomposition() knows.
Departures decomposition_departures();

}  // namespace ahead::tracing
