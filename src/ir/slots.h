#pragma once

#include "ahead/graph.h"

namespace ahead {

/// Whether the slots that name a position (GradOf, MutatedInput, Tangent, …) mean positions of this
/// graph. They do, unless it is the backward half of a joint graph: there they keep naming the
/// positions of the whole. A graph is such a half if it takes saved values, or if it has tangents
/// or gradients and returns nothing that the traced function returned.
bool names_own_positions(const Graph& graph);

/// Whether a result of the traced function has a history, though it may lead nowhere.
bool has_tangents(const Graph& graph);

}  // namespace ahead
