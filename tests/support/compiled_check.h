#pragma once

#include <torch/torch.h>

#include <functional>
#include <string>
#include <vector>

#include "ahead/ahead.h"
#include "support/call_comparison.h"

namespace ahead {

/// How a function is compared with its compiled form.
struct CompiledCheck {
  Options options{.fullgraph = true, .confirm = Confirm::Never, .debug_asserts = true};
  /// Pass tensors that are not leaves: what in-place operators on inputs that require grad need.
  bool non_leaf_inputs = false;
  /// Afterwards write to every output, as far as eager allows it.
  bool write_to_outputs = true;
  /// Compare the gradients of every output, and of every input that has got a history, on its own.
  bool backward = true;
  /// Only with writes to inputs kept in the graph.
  bool only_graph_writes = false;
};

/// Calls a function eagerly and compiled, each on its own inputs, several times in a row, with each
/// partitioner, and with writes to inputs inside and outside of the graph. Compares everything a
/// caller can see: values, layout, requires_grad, leaf-ness, versions, who shares memory with whom,
/// the inputs afterwards, the gradients of each output with the graph retained, random numbers, and
/// what in-place operators on the outputs do. `make_inputs` must make equal inputs after equal
/// seeds.
void expect_compiled_like_eager(const aot::FlatFunction& function,
                                const std::function<CallInputs()>& make_inputs,
                                CompiledCheck check = {});

/// The same with copies of these inputs. Inputs that are the same tensor, views of one, or share
/// memory otherwise, are copied as such.
void expect_compiled_like_eager(const aot::FlatFunction& function,
                                const std::vector<at::Tensor>& inputs, CompiledCheck check = {});

}  // namespace ahead
