#pragma once

#include <cstddef>
#include <vector>

#include "engine/walk/backward.h"
#include "engine/walk/step.h"

namespace ahead::engine {

/// A compiled function hands over its gradients by a chain of nodes, which are one graph together
/// or none. Leaves to themselves all nodes of the chains within which this step lies.
void leave_chains_at(size_t step, const Backward& backward, std::vector<Step::Kind>& kinds);
/// The same for chains that lie on both sides of what comes right before this step.
void leave_chains_across(size_t step, const Backward& backward, std::vector<Step::Kind>& kinds);

}  // namespace ahead::engine
