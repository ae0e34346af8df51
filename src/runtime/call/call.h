#pragma once

#include <memory>
#include <vector>

#include "runtime/call/call_plan.h"

namespace ahead::runtime {

/// The inputs of the forward graph for a call with these arguments.
std::vector<at::Tensor> graph_inputs(const Prologue& prologue, const std::vector<at::Tensor>& args);

/// Runs a compiled function: its results, its writes to arguments and captured tensors and the
/// history of all of them are those of the function itself. `given_away`: null, or the arguments
/// once more, which the call lets go of as soon as it can.
std::vector<at::Tensor> call(const std::shared_ptr<const CallPlan>& plan,
                             const std::vector<at::Tensor>& args,
                             std::vector<at::Tensor>* given_away = nullptr);

}  // namespace ahead::runtime
