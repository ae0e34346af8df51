#pragma once

#include <c10/util/FunctionRef.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/saved_variable.h>

namespace ahead {

/// Visits the tensors that a node of LibTorch's own has saved, in the order in which it unpacks
/// them. False: it is another kind of node, which does not tell.
bool for_each_saved(torch::autograd::Node& node,
                    c10::function_ref<void(torch::autograd::SavedVariable&)> visit);

/// Whether hooks pack and unpack some of what the node has saved, as far as that can be told.
bool has_saved_tensor_hooks(torch::autograd::Node& node);

}  // namespace ahead
