#pragma once

#include <vector>

#include "ahead/checkpoint.h"
#include "ahead/graph.h"

namespace ahead::tracing {

/// The checkpointed calls that a traced function is in, and what they want of its nodes.
class Checkpoints {
 public:
  /// From now on the nodes of the forward are tagged as this policy says, until leave().
  void enter(const CheckpointPolicy& policy) { policies_.push_back(&policy); }
  void leave() { policies_.pop_back(); }
  /// A node was written.
  void note_node(Node& node) const {
    if (!policies_.empty() && node.phase == Phase::Forward) tag(node);
  }
  /// Tags a node as the innermost checkpointed call wants it; outside of all of them, as one to be
  /// saved.
  void tag(Node& node) const;

 private:
  std::vector<const CheckpointPolicy*> policies_;
};

/// While it exists, the nodes of a trace are tagged as a checkpointed function's.
class CheckpointTags {
 public:
  CheckpointTags(Checkpoints& checkpoints, const CheckpointPolicy& policy);
  ~CheckpointTags();
  CheckpointTags(const CheckpointTags&) = delete;
  CheckpointTags& operator=(const CheckpointTags&) = delete;

  /// Lets the results of the function be saved, since what comes after starts from them; inside
  /// another checkpointed function that one decides.
  void finish(const std::vector<at::Tensor>& results);

 private:
  void leave();

  Checkpoints& checkpoints_;
  bool is_left_ = false;
};

}  // namespace ahead::tracing
