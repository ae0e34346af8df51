#pragma once

#include <torch/torch.h>

#include <string>
#include <vector>

#include "ahead/graph.h"

namespace ahead::native::test {

/// What the tolerance of a case is relative to.
enum class Against : uint8_t {
  Exact,       ///< nothing: the same numbers
  Result,      ///< each result
  Operands,    ///< the sum of the magnitudes of the operands of each result, and the result
  Magnitudes,  ///< the same operator over the magnitudes of its operands: sums
  Largest,     ///< the largest of all operands and results
};

/// A call of one operator.
struct RuleCase {
  std::string op;
  /// By position; what is missing is the schema's default.
  std::vector<c10::IValue> args;
  Against against = Against::Result;
  /// How many units in the last place of the result's dtype it may be off.
  double ulps = 4;
  /// Whether there is a rule for this call; false: it is left to ATen.
  bool taken = true;

  std::string str() const;
};

/// The call as a graph of one node whose inputs are the tensors among the arguments, and what ATen
/// gives for it.
struct RuleGraph {
  explicit RuleGraph(const RuleCase& from);

  Graph graph;
  std::vector<at::Tensor> inputs, expected;
};

/// Says where results differ from what ATen gives; empty if they do not.
std::string difference(const RuleCase& from, const RuleGraph& graph,
                       const std::vector<at::Tensor>& actual);

/// Computes all cases by kernels, which are compiled together, and compares them with ATen. Returns
/// how many were computed: where elements that are read one after the other lie apart, none is.
size_t check_rules(const std::vector<RuleCase>& cases);

/// The same by kernels that are lowered strictly, of cases that all have exact rules, to the bit.
size_t check_exact_rules(const std::vector<RuleCase>& cases);

}  // namespace ahead::native::test
