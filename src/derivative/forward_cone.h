#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ahead/partition.h"
#include "ir/copy.h"
#include "runtime/call/call_plan.h"

namespace ahead::compiling {

/// The position of a forward graph's output among those of the joint graph.
size_t joint_output(const JointGraph& joint, int32_t forward_output);

/// Which values of a joint graph a gradient could flow through, by Value::id().
std::vector<bool> find_dependent(const Graph& joint);

/// Whether a call changes a graph input: its contents, its shape, or only its version. What was
/// saved of it is not what it was.
bool changes_input(const runtime::Epilogue& epilogue, int32_t input);

/// The forward part of a joint graph that its differentiable outputs need, with inputs for what
/// must not be computed again.
class ForwardCone {
 public:
  using Need = runtime::DifferentiableBackward::Need;

  ForwardCone(const JointGraph& joint, const PartitionedGraphs& graphs);

  Graph graph;
  /// What each input of the graph is.
  std::vector<Need> needs;

  /// The nodes of the joint graph that draw random numbers on which no gradient depends, and which
  /// nothing that is saved tells. With these saved, the graph can run again.
  std::vector<const Node*> unsaved_random_nodes() const;
  /// Why running the graph again, under autograd, does not give the function's gradient; empty: it
  /// does, if the function has no gradients of its own making.
  std::string why_not(const runtime::Epilogue& epilogue) const;

 private:
  bool is_given(const Value* value) const;
  void collect(const PartitionedGraphs& graphs);
  void mark_needed(std::vector<bool>& needed);
  void copy_needed(const std::vector<bool>& needed);
  void add_input(Value* value, Need need);
  static bool is_without_statistics(const Node& node, const std::vector<bool>& needed);
  void copy_without_statistics(const Node& node);

  const JointGraph& joint_;
  std::vector<int32_t> saved_;
  std::vector<bool> depends_;
  std::vector<int32_t> forward_input_;
  std::vector<const Node*> needed_nodes_;
  ValueMap copies_;
  std::vector<const Node*> unrepeatable_;  ///< what would have to run twice
  std::string undifferentiable_;           ///< an output that has no gradient when it is computed again
};

}  // namespace ahead::compiling
