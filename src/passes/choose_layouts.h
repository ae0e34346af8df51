#pragma once

#include <cstddef>

#include "ahead/backend_traits.h"
#include "ahead/graph.h"

namespace ahead::passes {

/// Lets images lie with their channels innermost (channels_last) where operators gain more by that
/// than copies cost, as the preferences count it:
///
///     y = conv(x, w)                xl = clone(x, channels_last)
///     z = relu(y)            ──►    y = conv(xl, w), z = relu(y)      both channels_last
///     return z                      return clone(z, contiguous)
///
/// Images that are connected by operators which pass layouts on are decided for together. Inputs
/// and outputs of the graph, what is random, and what other operators take keep their strides.
/// Returns how many values lie otherwise and how many copies were added. Sums may be taken in
/// another order afterwards.
size_t choose_layouts(Graph& graph, const LayoutPreferences& preferences);

}  // namespace ahead::passes
