#pragma once

#include <cstdint>
#include <vector>

#include "ahead/graph.h"
#include "ir/sizes/size_expression.h"

namespace ahead {

/// The numbers of a graph that are others where the same function is traced for other sizes, in the
/// order of the graph: sizes, strides and offsets of inputs and results, and the numbers that
/// operators are given where their schemas allow for sizes.
struct GraphNumbers {
  std::vector<int64_t> values;  ///< floating-point numbers by their bits
  std::vector<bool> is_float;
  /// For each of them, whether it is a size of an input, or one that values decide.
  std::vector<bool> is_input_size;
  /// For each of them, whether an operator is given it, rather than it following from what
  /// operators are given.
  std::vector<bool> is_argument;
};

/// Those of a graph without symbols.
GraphNumbers numbers_of(const Graph& graph);

/// Whether two graphs without symbols differ in these numbers only. Captured tensors, the places
/// that issued calls and example sizes do not count.
bool are_alike(const Graph& a, const Graph& b);

/// A number of a graph: an integer or an expression over sizes, or where floating-point numbers
/// stand, something that is made of such.
struct GraphNumber {
  enum class Float : uint8_t {
    No,
    Bits,        ///< the number whose bits are the size `dim`, a symbol
    Value,       ///< the value of `dim`
    Reciprocal,  ///< 1 divided by that
  };
  Dim dim = 0;
  Float as_float = Float::No;

  bool is_fixed() const { return dim.is_fixed() && as_float == Float::No; }
};

/// The graph with other numbers, one for each of numbers_of(graph), for sizes that were `example`:
/// it takes them as its last input.
Graph with_numbers(const Graph& graph, const std::vector<GraphNumber>& numbers,
                   const std::vector<int64_t>& example);

/// A graph with symbols as it is for these sizes. It does not take them any more.
Graph at_sizes(const Graph& graph, const std::vector<int64_t>& sizes);

/// A graph with symbols where each of these is what stands for it, which may be an expression over
/// the symbols of another graph. It does not take sizes any more.
Graph over_sizes(const Graph& graph, c10::ArrayRef<SizeExpression> sizes);

}  // namespace ahead
