#pragma once

#include "ops/sample.h"

/// What eager mode makes of a sample: the truth that all checks compare with.
namespace ahead::samples {

/// One run of a sample's function in eager mode.
struct EagerRun {
  Tensors arguments;  ///< as they are after the run
  Tensors outputs;    ///< as returned; an entry may be undefined
  Tensors tangents;   ///< for each output and then for each mutated argument; undefined: needs none
  Tensors gradients;  ///< for each argument; undefined: none
  std::vector<bool> mutated;  ///< for each argument: whether the run wrote to it
};

/// Runs without gradients.
EagerRun run_eager(const Sample& sample);

/// Arguments that require grad where they can. Those that the function writes to are not leaves,
/// since eager mode refuses to write to leaves.
struct DifferentiableArguments {
  Tensors arguments;
  Tensors leaves;  ///< for each argument: the tensor with respect to which to differentiate
};
DifferentiableArguments make_differentiable_arguments(const Sample& sample,
                                                      const std::vector<bool>& mutated);

/// Runs forward and backward.
EagerRun run_eager_with_gradients(const Sample& sample);
/// The same with another function in place of the sample's own.
EagerRun run_with_gradients(const Sample& sample, const Fn& function);

/// Seeds the default generator if the sample draws random numbers. To be called before every run.
void seed(const Sample& sample);

/// Says how two tensors differ in presence, metadata or bits, but not in their offset; empty if
/// they do not. With `rounds`, layouts may differ, and values by rounding.
std::string difference(const at::Tensor& expected, const at::Tensor& actual, bool rounds = false);

/// Whether output `index` of the run shares memory with an argument that the run wrote to. A graph
/// returns such an output in any layout: its caller makes the real one from the argument.
bool aliases_mutated_argument(const EagerRun& run, size_t index);

}  // namespace ahead::samples
