#pragma once

#include <vector>

#include "runtime/call/call_plan.h"

namespace ahead::runtime {

/// For each input of the forward graph, whether a call needs it once that has run: it is saved, has
/// a gradient, is written to, or a result or view is made of it. Empty: the call may need all of
/// them, and all arguments.
std::vector<bool> find_kept_inputs(const CallPlan& plan);

}  // namespace ahead::runtime
