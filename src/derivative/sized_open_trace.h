#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "ahead/partition.h"
#include "observe/tape/tape.h"
#include "runtime/call/call_plan.h"
#include "trace/joint_trace.h"

namespace ahead::compiling {

/// Derivatives of a program for many sizes that are read off open traces. One trace is for some
/// sizes only, and holds as much as the call did: it is made when somebody asks for a derivative.
class SizedOpenTraces {
 public:
  /// `graph` takes sizes; `joint` is a copy of it, of which the halves were cut.
  SizedOpenTraces(Graph graph, const JointGraph& joint, PartitionedGraphs halves,
                  aot::GraphCompiler compiler, std::optional<AutocastState> autocast);

  /// The derivatives for one choice of sizes. They are found by tracing `function` again, in the
  /// modes that there are now, with tensors that look like `inputs`; `captured`: for each input of
  /// the graph, the tensor that it captured. Throws Unsupported, where they are asked for, if the
  /// function does something else by then.
  std::shared_ptr<runtime::DifferentiableBackward> at(
      const std::vector<int64_t>& sizes, const aot::FlatFunction& function,
      const std::vector<at::Tensor>& inputs, std::vector<observe::WeakTensor> captured) const;

 private:
  struct General;

  std::shared_ptr<const General> general_;
};

}  // namespace ahead::compiling
