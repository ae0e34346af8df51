#pragma once

#include <torch/nn/module.h>

#include <functional>
#include <string>
#include <vector>

#include "ahead/compiled_autograd.h"
#include "support/eager.h"

namespace ahead::test {

/// The `.grad` of every parameter.
std::vector<at::Tensor> grads_of(const torch::nn::Module& module);

/// What compiled_autograd::reasons() tells, one in a line.
std::string all_reasons();

/// Builds tensors, runs backwards and returns what they left; deterministic for a given seed.
using BackwardProgram = std::function<std::vector<at::Tensor>()>;

/// Runs it with the eager engine and then `runs` times with compiled autograd on. Every tensor must
/// be the same each time: defined or not, dtype, layout, sizes, strides, and to the bit. Returns
/// what was counted.
compiled_autograd::Stats compare_with_eager(const BackwardProgram& program, int runs = 3,
                                            compiled_autograd::Options options = {});

/// The same, and that something was captured.
compiled_autograd::Stats expect_as_eager(const BackwardProgram& program, int runs = 3,
                                         compiled_autograd::Options options = {});

/// The same, and that one graph serves all backwards of the program.
void expect_one_graph(const BackwardProgram& program);

/// The same for a program that throws: types and messages must be the same.
void expect_error_as_eager(const BackwardProgram& program);

}  // namespace ahead::test
