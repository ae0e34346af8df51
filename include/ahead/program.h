#pragma once

#include <memory>
#include <string>

#include "ahead/graph.h"

namespace ahead {

/// The program after one stage of a compilation.
struct Program {
  std::string name;
  double seconds = 0;
  /// Null for what a backend says of its own work, which is only text.
  std::shared_ptr<const Graph> graph;
  std::string text = {};

  std::string str() const { return graph == nullptr ? text : graph->str(); }
};

}  // namespace ahead
