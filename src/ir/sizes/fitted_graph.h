#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "ahead/graph.h"
#include "ir/sizes/graph_numbers.h"

namespace ahead {

/// A graph for many sizes, found by comparing alike graphs that were traced for some.
///
/// Each number that is not the same in all of them is a symbol or an expression over symbols, and
/// each symbol is one of these numbers. So there is always such a graph; whether another graph is
/// this one for some sizes is not guessed, but compared.
class FittedGraph {
 public:
  /// `samples`: the numbers of graphs that are alike, those of `example` among them.
  FittedGraph(const Graph& example, const std::vector<GraphNumbers>& samples);

  /// With the sizes as its last input.
  const Graph& graph() const { return graph_; }
  /// The sizes for which the graph has these numbers; none: there are no such sizes. The numbers
  /// are those of a graph that is alike.
  std::optional<std::vector<int64_t>> sizes_for(const std::vector<int64_t>& numbers) const;
  /// The symbols, by number, of which nothing is known but that operators are given them: they
  /// follow from sizes in an unknown way, or do not.
  const std::vector<size_t>& unexplained() const { return unexplained_; }

 private:
  /// What a number must be: one that is the same for all sizes, or the value of an expression.
  struct Expected {
    int64_t fixed = 0;
    int32_t expression = -1;  ///< among expressions_; -1: none
  };

  std::vector<uint32_t> symbols_;  ///< for each symbol, the number that it is
  std::vector<size_t> unexplained_;
  std::vector<GraphNumber> expressions_;  ///< each once
  std::vector<Expected> expected_;
  Graph graph_;
};

}  // namespace ahead
