#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace ahead {

class Graph;

/// How a backend is told in which order effects have to happen.
enum class EffectTokens : uint8_t {
  None,       ///< by the order of nodes: those with Tag::Effect run once, in the order of the graph
  Arguments,  ///< by tokens, which are arguments and results of the graph: see lift_effect_tokens()
  Inside,     ///< by tokens that are made and dropped inside the graph: see unlift_effect_tokens()
};

/// What an operator gains where the images that it takes and returns (tensors of four dimensions)
/// lie with their channels innermost (channels_last), counted in bytes that it need not move.
struct ChannelsLastGain {
  std::string op;      ///< by its name in graphs
  double images = 0;   ///< for each byte of its images; less than 0: it loses
  double weights = 0;  ///< for each byte of its other operands, and of their gradients
};

/// Which layout of images a backend prefers; see passes::choose_layouts(). Operators that are not
/// named gain nothing. If none is, all values keep the layouts that eager gives them.
struct LayoutPreferences {
  std::vector<ChannelsLastGain> channels_last = {};
  /// What copying a byte into channels_last costs, and out of it.
  double copy_in = 1, copy_out = 1;
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
  /// In which layout images go through its graphs. What users see has eager's strides all the same.
  LayoutPreferences layouts = {};
  /// Is told of a graph that will be compiled if somebody asks for it: of the backward when a forward
  /// is about to be compiled. A backend may begin with what takes long, on a thread of its own;
  /// `make` makes the graph, on any thread. May be empty.
  std::function<void(std::function<Graph()> make)> begin = {};
};

}  // namespace ahead
