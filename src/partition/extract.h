#pragma once

#include <string>
#include <vector>

#include "ahead/partition.h"
#include "ops/facts/aliasing.h"
#include "partition/roles.h"

namespace ahead::partition {

/// A joint graph with what every partitioner asks about it. Everything about nodes is in their
/// order.
struct JointFacts {
  explicit JointFacts(const Graph& joint);

  const Graph& graph;
  std::vector<const Node*> nodes;
  ops::Aliasing aliasing;
  std::vector<bool> visible;  ///< memory that inputs or results share; by Aliasing::group()
  std::vector<Role> roles;
  /// Whether the value may share memory with an input that is overwritten after the forward; by
  /// Value::id().
  std::vector<bool> overwritten;
  /// The position of the node that makes the value, or -1 for inputs; by Value::id().
  std::vector<int32_t> producer;
  /// Inputs that the backward writes to, in their order.
  std::vector<const Value*> written_late;
  /// The one of `written_late` that has these contents once the forward has run: the backward reads
  /// it there, as eager does; null: none. By Value::id().
  std::vector<const Value*> found_in;

 private:
  void mark_written(const Node& node);
  void find_written_late();
  void keep_out_of_backward();
};

/// What a partitioner decided about one node.
struct Verdict {
  /// Whether the backward computes a result of the node that it needs; else the forward saves it.
  bool compute_in_backward = false;
  const char* reason = "";
};

/// Lets extract() save the results of a node of the forward whether or not the backward needs them.
void save_in_any_case(Node& node);

/// Whether extract() lists the decision about each node.
enum class Explain : uint8_t { No, Yes };

/// Cuts a joint graph in two along the verdicts, which are in the order of the nodes. A node that
/// must be in one half is put there whatever its verdict. `is_static` says of each input of the
/// joint graph whether saving it is free.
PartitionedGraphs extract(const JointFacts& joint, const std::vector<Verdict>& verdicts,
                          const std::vector<bool>& is_static, Explain explain);

/// Which inputs of a joint graph stay alive whether they are saved or not: captured tensors, and
/// the inputs at the given positions.
std::vector<bool> find_static_inputs(const Graph& joint, const std::vector<int64_t>& positions);

}  // namespace ahead::partition
