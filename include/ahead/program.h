#pragma once

#include <memory>
#include <string>

#include "ahead/graph.h"

namespace ahead {

/// The program after one stage of a compilation.
struct Program {
  std::string name;
  double seconds = 0;
  std::shared_ptr<const Graph> graph;

  std::string str() const { return graph->str(); }
};

}  // namespace ahead
