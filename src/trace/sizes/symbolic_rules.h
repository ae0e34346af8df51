#pragma once

#include <ATen/core/ivalue.h>

#include <vector>

#include "trace/dispatch/traced_op.h"
#include "trace/sizes/symbolic_layout.h"

namespace ahead::tracing {

/// What the results of an operator look like for all sizes, given its arguments (fake tensors,
/// integers that may be made of sizes) and its results for the sizes for which is traced: one
/// layout for each result. Throws Unsupported, naming the operator, where that is not known.
///
/// Shape rules and Meta kernels answer for fixed sizes; these answer which of them stay related to
/// which when they change. There are few, since only what backward formulas call is asked for.
std::vector<SymbolicLayout> symbolic_results(const TracedOp& op,
                                             const std::vector<c10::IValue>& arguments,
                                             const std::vector<at::Tensor>& results);

}  // namespace ahead::tracing
