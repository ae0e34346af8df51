#pragma once

#include <vector>

#include "ahead/graph.h"
#include "ops/facts/aliasing.h"

namespace ahead::partition {

/// Where a node of a joint graph must run, whatever is saved.
struct Role {
  /// The forward's outputs need it, or its order among random and effectful nodes puts it there.
  bool in_forward = false;
  /// It depends on a tangent, is tagged must_be_in_backward, its order puts it there, or it is of
  /// the backward phase and reads memory that the caller may write to before the backward.
  bool in_backward = false;
  /// The backward's outputs need it, directly or through others.
  bool serves_backward = false;
  /// It reads the storage beyond an operand of which the backward could only get a copy, or memory
  /// to which backwards write.
  bool never_in_backward = false;
  /// The backward reads its result, which the caller gets and may have written to by then.
  bool is_read_later = false;
  /// A node of the backward writes to its result: a saved one would serve one backward only.
  bool written_in_backward = false;
};

/// Whether the caller sees memory of this group, as that of an input or of a result; by
/// Aliasing::group.
std::vector<bool> find_visible(const Graph& joint, const ops::Aliasing& aliasing);

/// The roles of all nodes, in their order, given find_visible(). Throws Unsupported if a node
/// would have to be in both halves, though it may run only once or depends on a tangent.
std::vector<Role> find_roles(const Graph& joint, const ops::Aliasing& aliasing,
                             const std::vector<bool>& is_visible);

/// Whether an output of a joint graph is one of its forward half.
inline bool is_forward_output(const Graph::Output& output) {
  return output.slot.kind != Slot::Kind::GradOf;
}

}  // namespace ahead::partition
