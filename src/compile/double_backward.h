#pragma once

#include <memory>
#include <string>

#include "ahead/detail/compiled_core.h"
#include "ahead/partition.h"
#include "runtime/call_plan.h"

namespace ahead::compiling {

/// The gradient of a compiled function as a function of its inputs and tangents, compiled like any
/// other function once somebody asks for it; so there are derivatives of every order.
///
/// It runs the forward part of the joint graph again, under autograd. What was random is taken from
/// the first run. `opaque` names an autograd node whose gradient is not that of the operators it
/// stands for (a custom function, a hook); empty if there is none.
std::shared_ptr<runtime::DifferentiableBackward> make_double_backward(
    const JointGraph& joint, const PartitionedGraphs& graphs, const std::string& opaque,
    const Options& options, const detail::Compilers& compilers);

}  // namespace ahead::compiling
