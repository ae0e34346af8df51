#pragma once

#include <torch/torch.h>

#include <functional>
#include <string>
#include <vector>

#include "ahead/ahead.h"

namespace ahead {

/// How a function is compared with its compiled form.
struct CompiledCheck {
  Options options{.fullgraph = true};
  /// Pass tensors that are not leaves: what in-place operators on inputs that require grad need.
  bool non_leaf_inputs = false;
  /// Afterwards write to every output, as far as eager allows it.
  bool write_to_outputs = true;
  /// Compare the gradients of every output on its own, and not only of all together.
  bool backward = true;
};

/// Calls a function eagerly and compiled, each on its own copies of the inputs, several times in a
/// row, and compares everything a caller can see: values, layout, requires_grad, leaf-ness, versions,
/// who shares memory with whom, the inputs afterwards, the gradients of each output with the graph
/// retained, random numbers, and what in-place operators on the outputs do. Inputs that are the same
/// tensor, or views of one, are copied as such.
void expect_compiled_like_eager(const aot::FlatFunction& function,
                                const std::vector<at::Tensor>& inputs, CompiledCheck check = {});

}  // namespace ahead
