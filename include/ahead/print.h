#pragma once

#include <ATen/core/Tensor.h>

#include <concepts>
#include <string>
#include <utility>
#include <vector>

#include "ahead/export.h"

namespace ahead {

/// Prints a line to std::cout, flushed, in one piece: the format with the tensors in place of `{}`,
/// in order; `{{` and `}}` are braces. A tensor without dimensions is printed as a number. It is an
/// operator with an effect, `ahead::print`: in a compiled function, its backward and in compiled
/// autograd each call prints what the tensors hold then. Throws UserError if there are more or
/// fewer tensors than places.
AHEAD_API void print(std::string format, const std::vector<at::Tensor>& tensors);

template <std::convertible_to<at::Tensor>... Tensors>
void print(std::string format, const Tensors&... tensors) {
  print(std::move(format), std::vector<at::Tensor>{tensors...});
}

}  // namespace ahead
