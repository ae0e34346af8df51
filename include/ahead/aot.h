#pragma once

#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "ahead/compile.h"
#include "ahead/executable.h"
#include "ahead/exported.h"
#include "ahead/options.h"
#include "ahead/partition.h"
#include "ahead/passes.h"

/// For compiler authors: capture and differentiation by Ahead, code by their own compilers.
namespace ahead::aot {

/// What is done with the graphs of a function. Empty compilers interpret.
struct Config {
  /// Compiles the forward graph of a function with gradient.
  GraphCompiler forward = {};
  /// Compiles the backward graph; the default is `forward`.
  GraphCompiler backward = {};
  /// Compiles the graph of a call without gradient; the default is `forward`.
  GraphCompiler inference = {};
  /// Cuts the joint graph in two; the default is partition_default.
  PartitionFunction partition = {};
  /// What takes the place of operators, by name, before the graphs are partitioned and compiled.
  DecompositionTable decompositions = {};
  /// The first so many arguments are parameters and buffers: they keep their memory from call to
  /// call, so that saving them is free, and messages name them so.
  int64_t num_params_buffers = 0;
  /// Arguments may be written to by nodes of the graph (`aten.copy_`), as
  /// Options::keep_input_mutations says; false: new contents are results of the graph.
  bool keep_inference_input_mutations = false;
  /// For export_joint: the gradient is that of the one result that requires grad, a scalar, and the
  /// graph takes no tangent for it.
  bool no_tangents = false;
  /// Everything else.
  Options options = {.fullgraph = true, .partitioner = Partitioner::Default, .confirm = 0};
};

using CompiledFunction = Compiled<FlatFunction>;
template <class M>
using CompiledModule = Compiled<std::shared_ptr<M>>;

namespace detail {
/// The compilers and options that a configuration stands for.
AHEAD_API ahead::detail::Compilers compilers_of(const Config& config);
AHEAD_API Options options_of(const Config& config);
}  // namespace detail

/// Captures a function over a flat list of tensors when it is called, and compiles its graphs. The
/// forward compiler is called at the first call that needs a gradient, the backward compiler at the
/// first backward, the inference compiler at the first call that needs none.
AHEAD_API CompiledFunction function(FlatFunction function, Config config);

/// The same for a module, whatever its `forward` takes.
template <class M>
CompiledModule<M> module(std::shared_ptr<M> module, const Config& config) {
  return CompiledModule<M>(std::move(module), detail::options_of(config),
                           detail::compilers_of(config));
}

/// Captures a function over a flat list with its gradient, and changes nothing about how it is
/// called: the graph takes the inputs, then a tangent for each result that requires grad, and
/// returns the results, then the gradient of each input that requires grad. Where no input does, or
/// grad mode is off, it is the graph of the function alone. Tensors that the function captured stay
/// with the graph.
///
/// Throws Unsupported if the function writes to an input, if a result shares memory with an input
/// or another result, or if it captured a tensor that requires grad.
AHEAD_API JointGraph export_joint(const FlatFunction& function,
                                  const std::vector<at::Tensor>& inputs, const Config& config = {});
template <class Inputs>
requires(!std::is_convertible_v<const Inputs&, std::vector<at::Tensor>>) JointGraph
    export_joint(const FlatFunction& function, const Inputs& inputs, const Config& config = {})
= delete;  // aot_export_joint_simple requires individual inputs not to be pytrees

}  // namespace ahead::aot
