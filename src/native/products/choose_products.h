#pragma once

#include "ahead/graph.h"

namespace ahead::native {

/// Which library multiplies matrices faster on this machine.
enum class Multiplier : uint8_t { ATen, OneDnn };

/// Smaller matrices of a batch are not worth a call of oneDNN each, in multiplications.
constexpr int64_t fewest_in_batches = int64_t{1} << 21;

/// ATen calls MKL, which does not use the vectors of 512 bits that some processors of others than
/// its maker's have; oneDNN, which LibTorch brings as well, does.
Multiplier fastest_multiplier();

/// Lets `multiplier` compute the products of float32 matrices that are large enough for it. Returns
/// how many it has got.
size_t choose_products(Graph& graph, Multiplier multiplier);

}  // namespace ahead::native
