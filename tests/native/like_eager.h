#pragma once

#include <functional>
#include <string>
#include <vector>

#include "ahead/ahead.h"
#include "support/call_comparison.h"

namespace ahead::native::test {

/// Results and gradients may be off by so many units in the last place of the largest number.
constexpr double rounding = 512;

/// Inputs that all require grad unless they are no floating point numbers.
CallInputs leaves_of(const std::vector<at::Tensor>& tensors);

/// What a compiled function did, as far as kernels are concerned.
template <class Compiled>
std::string fused_graphs(const Compiled& compiled) {
  std::string text;
  for (const Program& program : compiled.programs()) {
    if (program.name.starts_with("fused")) text += program.str();
  }
  return text;
}

/// Compares a function with what kernels make of it: results, writes, and the gradients of each
/// result, several times. Some of its operators must have become kernels. Returns the graphs of the
/// last compilation.
std::string expect_like_eager(const aot::FlatFunction& function,
                              const std::function<CallInputs()>& make_inputs,
                              CallPoints points = {});
std::string expect_like_eager(const aot::FlatFunction& function,
                              const std::function<std::vector<at::Tensor>()>& make);

}  // namespace ahead::native::test
