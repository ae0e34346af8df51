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
  /// What a backend says of its work on the graph; empty for other stages.
  std::string text = {};

  std::string str() const { return text.empty() ? graph->str() : text; }
};

}  // namespace ahead
