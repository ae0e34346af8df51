#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ahead {

/// How a backend is told in which order effects have to happen.
enum class EffectTokens : uint8_t {
  None,       ///< by the order of nodes: those with Tag::Effect run once, in the order of the graph
  Arguments,  ///< by tokens, which are arguments and results of the graph: see lift_effect_tokens()
  Inside,     ///< by tokens that are made and dropped inside the graph: see unlift_effect_tokens()
};

/// What a backend says of itself when it is registered. Everything is off unless it says otherwise,
/// so that a backend is never given a graph that it does not expect.
struct BackendTraits {
  /// It takes graphs for many sizes: an input in the slot `Sizes` holds the values of the symbols
  /// over which sizes, strides and constants are expressions. A backend without this gets a graph
  /// for each choice of sizes.
  bool takes_sizes = false;
  /// A backend that runs nodes in any order that their operands allow asks for tokens.
  EffectTokens effect_tokens = EffectTokens::None;
  /// Operators, beside pointwise ones, that it computes in one pass with what reads their results,
  /// so that a partitioner may let the backward run them again. By their names in graphs.
  std::vector<std::string> fused_operators = {};
};

}  // namespace ahead
