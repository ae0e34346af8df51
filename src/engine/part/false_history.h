#pragma once

#include "ahead/graph.h"

namespace ahead::engine {

/// A node of a graph whose operator, called above autograd, would leave a history that gives other
/// gradients than what was traced as this operator; null: there is none.
const ahead::Node* find_false_history(const Graph& graph);

}  // namespace ahead::engine
