#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>

#include "trace/observers/generator_position.h"

namespace ahead::observe {

/// The most bytes of a tensor made by the host that are compared between calls.
constexpr size_t most_compared_bytes = size_t{1} << 20;

/// The most bytes of a tensor that are looked at in the very first call: it may be a number.
constexpr size_t most_constant_bytes = 64;

/// Whether a tensor lies somewhere in memory that can be told.
bool has_place(const at::Tensor& tensor);
/// Where in its storage it lies, and how, as one number.
uint64_t place_of(const at::Tensor& tensor);

/// Whether a tensor was told itself to require grad.
bool has_flag(const at::Tensor& tensor);

/// A copy that nothing notices.
at::Tensor copy_of(const at::Tensor& tensor);

/// Where the default generator of random numbers stands.
tracing::GeneratorPosition generator_position();

}  // namespace ahead::observe
