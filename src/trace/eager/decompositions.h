#pragma once

#include <ATen/core/boxing/KernelFunction.h>

#include <string>

namespace ahead::tracing {

/// What is traced instead of an `aten` operator (named with its overload, as in its schema): for
/// operators whose own implementation reads values that only its checks depend on, or which
/// LibTorch functionalises with another result. It has the operator's signature. Null: traced as it
/// is.
const c10::KernelFunction* find_decomposition(const std::string& name);

}  // namespace ahead::tracing
