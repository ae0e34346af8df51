#pragma once

#include <vector>

#include "engine/gradients.h"
#include "engine/part/lifted_sizes.h"
#include "engine/part/part.h"

namespace ahead::engine {

/// Traces steps `begin` to `end` of a backward, for the gradients that wait now. Throws
/// NotTraceable, naming the step at fault. Nothing is run or changed.
Part trace_part(Backward& backward, const std::vector<Step::Kind>& kinds, size_t begin, size_t end,
                const Gradients& gradients);
/// The same with a graph for all sizes for which the part's guards hold. Throws std::exception if
/// there is none.
Part trace_lifted_part(Backward& backward, const std::vector<Step::Kind>& kinds, size_t begin,
                       size_t end, const Gradients& gradients, const ChangingSizes& sizes);

}  // namespace ahead::engine
