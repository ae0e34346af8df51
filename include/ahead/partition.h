#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "ahead/export.h"
#include "ahead/graph.h"

namespace ahead {

/// One value that the forward graph hands to the backward graph.
struct SavedValue {
  /// What is saved: Value::id() in the joint graph; -1 if a partitioner does not say.
  int64_t joint_value = -1;
  /// The forward graph's input that is saved; -1 if an intermediate is.
  int64_t input = -1;
  /// A forward output before the Saved ones that is the very same value; -1 if there is none.
  int64_t output = -1;
  /// The forward makes a copy, because the original shares memory with an input that is overwritten
  /// once the forward has run. `input` is then -1.
  bool copied = false;
  /// No input and no other forward output shares its memory, so a backend may overwrite it in a
  /// backward that runs only once.
  bool owned = false;
  /// What keeping it costs; 0 for inputs that are alive anyway: captured and static ones.
  int64_t bytes = 0;
  std::string reason;
};

/// What a partitioner decided about one result of the joint graph's forward part.
struct PartitionDecision {
  /// The node that makes the value, as it stands in the joint graph's text.
  std::string node;
  bool saved = false;  ///< else computed again in the backward
  int64_t bytes = 0;
  std::string reason;
};

/// A joint graph cut in two. Running `forward` and then `backward` gives the joint graph's results
/// to the bit.
///
/// `forward` takes all inputs of the joint graph but the tangents, in their order and slots. It
/// returns all outputs of the joint graph but the gradients, in their order and slots, then Saved 0
/// to n-1.
///
/// `backward` takes Saved 0 to n-1, then the tangents in the joint graph's order, then the Sizes if
/// the joint graph does. It returns the gradients. There GradOf p names position p among the inputs
/// of `forward`, and Tangent p position p among its outputs. A node of the forward phase in it is
/// one that is computed again.
///
/// The caller owes the backward that saved tensors have not changed since. A saved input or output
/// is the user's tensor as well, so it needs a version check. Inputs named by MutatedInput may be
/// overwritten at once: nothing that shares memory with them is saved.
struct AHEAD_API PartitionedGraphs {
  Graph forward;
  Graph backward;
  std::vector<SavedValue> saved;
  std::vector<PartitionDecision> decisions;

  /// The sum of SavedValue::bytes.
  int64_t saved_bytes() const;
  /// The most memory in use at a time while `forward` or `backward` runs, as ahead::peak_bytes
  /// counts it; saved inputs count for nothing, since the caller has them.
  int64_t peak_bytes() const;
  /// A line for each decision, with its reason.
  std::string explain() const;
};

/// How a joint graph is cut in two.
using PartitionFunction = std::function<PartitionedGraphs(const JointGraph&)>;

/// Cuts where the phases meet: saves what the backward phase takes from the forward phase, as
/// eager does. Only views are made again, and what is tagged MustRecompute.
///
/// Throws Unsupported if an output that belongs to the forward depends on a tangent.
AHEAD_API PartitionedGraphs partition_default(const JointGraph& joint);

/// How long a call takes, in any unit: a number that is not negative.
using RuntimeEstimator = std::function<double(const Node&)>;

struct PartitionOptions {
  /// How much may be saved, as a share of what partition_default saves, from 0 to 1. Where that
  /// cannot be reached, as little is saved as can be.
  double memory_budget = 1.0;
  /// Positions among the joint graph's inputs of tensors that stay alive anyway, such as
  /// parameters that are arguments. Saving them is free; so is saving captured tensors.
  std::vector<int64_t> static_inputs = {};
  /// Whether operators outside `aten` may run twice.
  bool recompute_custom_operators = false;
  /// After so many cheap operators in a row, one counts as expensive; 0: none does.
  int32_t longest_chain = 100;
  /// Whether reductions count as cheap, which they are where results are read as they are made.
  bool recompute_reductions = false;
  /// Operators, by their names in graphs, that count as cheap because the backend computes them
  /// with what reads their results; see BackendTraits.
  std::vector<std::string> fused_operators = {};
  /// Whether everything counts as cheap that may run twice, products included.
  bool aggressive_recomputation = false;
  /// Tells what is cheapest to run again within a budget. Empty: bytes and arithmetic do.
  RuntimeEstimator runtime = {};
};

/// Saves the fewest bytes: what is cheap to compute is computed again in the backward where that
/// saves memory, just before its first use. With a budget below 1, expensive operators run again as
/// well, chosen so that they cost the least time.
///
/// Never runs anything random, effectful, collective or custom twice. Never saves more bytes than
/// partition_default, nor has a higher peak; a smaller budget never gives more of either. Throws
/// what partition_default throws, and UserError for a budget outside of 0 to 1 and for a runtime
/// below 0.
AHEAD_API PartitionedGraphs partition_min_cut(const JointGraph& joint,
                                              const PartitionOptions& options = {});

/// The most memory in use at a time when the graph's nodes run in order and each tensor is freed
/// after its last use. Views take no memory. Inputs that the graph is given for good (saved values,
/// tangents) count until their last use, others not at all; outputs count to the end.
AHEAD_API int64_t peak_bytes(const Graph& graph);

}  // namespace ahead
