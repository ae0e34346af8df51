#pragma once

#include <torch/torch.h>

#include <functional>
#include <vector>

#include "ahead/ahead.h"

/// A program with everything it touches. Made anew for each run, so that runs cannot disturb each
/// other.
struct Scene {
  ahead::aot::FlatFunction function;
  std::vector<at::Tensor> inputs;
  /// Tensors that the function reaches without their being arguments.
  std::vector<at::Tensor> captured;
  /// For each input the tensor to differentiate with respect to, where that is not the input
  /// itself: an input that is no leaf and gets mutated.
  std::vector<at::Tensor> leaves;
};

/// Traces the program jointly, interprets the graph, and expects all that eager gives: outputs to
/// the bit with sizes, strides, dtype, requires_grad; mutated tensors; gradients; `.grad`s; the
/// state of the random number generator. Also expects the trace itself to leave no trace. Returns
/// the graph.
ahead::JointGraph expect_like_eager(const std::function<Scene()>& make_scene);

/// Says how two tensors differ in presence, metadata or bits; empty if they do not.
std::string tensor_difference(const at::Tensor& expected, const at::Tensor& actual);

/// Expects two lists of tensors to be the same in all that, and in whether they require grad.
void expect_same(const std::vector<at::Tensor>& eager, const std::vector<at::Tensor>& compiled);

/// The metadata without the strides that mean nothing: those of dimensions with at most one
/// element.
ahead::TensorMeta meaningful(ahead::TensorMeta meta);

/// The identity as a non-leaf without a view relation, so that writing to it is legal.
at::Tensor as_non_leaf(const at::Tensor& leaf);

/// How often an operator occurs in a graph.
size_t count(const ahead::Graph& graph, const std::string& op);
