#pragma once

#include <functional>
#include <string>
#include <vector>

#include "ahead/ahead.h"
#include "support/eager.h"

namespace ahead {

/// A program with everything it touches. Made anew for each run, so that runs cannot disturb each
/// other.
struct Scene {
  aot::FlatFunction function;
  std::vector<at::Tensor> inputs;
  /// Tensors that the function reaches without their being arguments.
  std::vector<at::Tensor> captured;
  /// For each input the tensor to differentiate with respect to, where that is not the input
  /// itself: an input that is no leaf and gets mutated.
  std::vector<at::Tensor> leaves;
};

/// Traces the program jointly, interprets the graph, and expects all that eager gives: outputs to
/// the bit with sizes, strides, dtype, requires_grad; mutated tensors; gradients; `.grad`s; the
/// state of the random number generator. Also expects the trace itself to leave no trace. Seeds the
/// generator before each scene is made. Returns the graph.
JointGraph expect_like_eager(const std::function<Scene()>& make_scene);

/// How often an operator occurs in a graph.
size_t count(const Graph& graph, const std::string& op);

}  // namespace ahead
