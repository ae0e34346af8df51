#pragma once

#include <vector>

#include "ahead/checkpoint.h"
#include "trace/tracer.h"

namespace ahead::tracing {

/// While it exists, the nodes of a trace are tagged as a checkpointed function's.
class CheckpointTags {
 public:
  CheckpointTags(Tracer& tracer, const CheckpointPolicy& policy);
  ~CheckpointTags();
  CheckpointTags(const CheckpointTags&) = delete;
  CheckpointTags& operator=(const CheckpointTags&) = delete;

  /// Lets the results of the function be saved, since what comes after starts from them; inside
  /// another checkpointed function that one decides.
  void finish(const std::vector<at::Tensor>& results);

 private:
  void leave();

  Tracer& tracer_;
  bool is_left_ = false;
};

}  // namespace ahead::tracing
