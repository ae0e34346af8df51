#pragma once

#include "ahead/graph.h"

namespace ahead {

/// Whether the slots that name a position (GradOf, MutatedInput, Tangent, …) mean positions of this
/// graph. They do, unless it is the backward half of a joint graph: there they keep naming the
/// positions of the joint graph. A graph is a backward half if it takes saved values, or if it has
/// tangents or gradients and returns nothing that the traced function returned.
bool names_own_positions(const Graph& graph);

/// Whether the graph takes a tangent: a result of the traced function requires grad, even if no
/// input gets a gradient from it.
bool has_tangents(const Graph& graph);

}  // namespace ahead
