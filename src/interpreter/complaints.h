#pragma once

#include <optional>

#include "interpreter/plan.h"

/// What the interpreter says when a graph cannot run as it is asked to.
namespace ahead::interpreting {

[[noreturn]] void throw_not_replayable(const Interpreter::Plan::Call& call);

/// `given` is not what the graph takes in this place, one of `all`.
[[noreturn]] void throw_other_tensor(const Interpreter::Plan::Parameter& parameter,
                                     const at::Tensor& given,
                                     const std::vector<Interpreter::Plan::Parameter>& all);

/// A call returned something else than the graph says of its results: because of sizes that the
/// graph reads, or because the operator's author wants that.
[[noreturn]] void throw_broken_promise(const Interpreter::Plan::Call& call,
                                       const TensorMeta& expected, const at::Tensor& result,
                                       bool reads_sizes);

}  // namespace ahead::interpreting
