#pragma once

#include "ops/input.h"

namespace ahead::samples {

/// Whether an operator on images also takes one image without a batch.
enum class Unbatched : uint8_t { Yes, No };

/// Images `[batch, channels, spatial…]` in every layout, channels last included, for the first type
/// of the set, and in the plain ones for the other types.
std::vector<Inputs> image_inputs(Dtypes dtypes, const std::vector<int64_t>& spatial,
                                 Unbatched unbatched);

}  // namespace ahead::samples
