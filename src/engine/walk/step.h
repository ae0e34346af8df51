#pragma once

#include <torch/csrc/autograd/function.h>

#include <cstdint>

#include "engine/walk/hooks.h"

namespace ahead::engine {

/// One autograd node, at the place at which the eager engine would run it.
///
/// Every input of every node has a number of its own, its place: there the gradients that flow into
/// it are added up.
struct Step {
  enum class Kind : uint8_t {
    Traced,      ///< becomes part of a graph
    Accumulate,  ///< adds to a leaf's `.grad`
    Result,      ///< its gradient is asked for and goes no further
    Called,  ///< user code, or a leaf's node with hooks on what it returns: a call between graphs
    Eager,   ///< runs as in eager
  };
  torch::autograd::Node* node;
  Kind kind;
  Hooks hooks;
  uint32_t first_place;
  uint32_t num_places;
  uint32_t first_target;  ///< into Backward::targets, one for each next edge
  uint32_t num_targets;
  uint32_t first_input;  ///< among Backward::inputs, those that no earlier step holds
  uint32_t num_inputs;
  uint32_t first_hooked;  ///< into Backward::hooked, the saved tensors that hooks unpack
  uint32_t num_hooked;
  uint32_t first_number;      ///< among the numbers lifted from custom functions
  uint32_t first_size_input;  ///< among the sizes that nodes hold themselves
  uint32_t num_size_inputs;
  uint32_t first_size;  ///< where these stand in Backward::sizes
  uint32_t key_end;     ///< where what is special about this node ends in the key
};

}  // namespace ahead::engine
