#include "native/groups.h"

#include <algorithm>
#include <atomic>
#include <optional>

#include "ahead/errors.h"
#include "native/build/target.h"
#include "native/lower/lower.h"

namespace ahead::native {

Groups find_groups(const Graph& fused, const std::vector<SlicedCall>& sliced, uint64_t fuse_limit,
                   bool strict) {
  static std::atomic<uint64_t> number_of_process{0};
  Groups found;
  for (const Node& node : fused.nodes()) {
    if (node.op().in_dispatcher()) continue;
    const std::shared_ptr<const Graph>& graph = node.args()[0].graph();
    const bool is_sliced = std::any_of(sliced.begin(), sliced.end(),
                                       [&](const SlicedCall& call) { return call.whole == graph; });
    if (is_sliced) continue;
    std::string name = std::to_string(graph->num_nodes()) + " operators that end with " +
                       graph->last()->op().name();
    if (number_of_process++ >= fuse_limit) {
      found.left.push_back(name + ": AHEAD_FUSE_LIMIT is reached");
      continue;
    }
    // Loops that were found one operator after the other may not be found again when all are looked
    // at together.
    try {
      Kernel kernel = lower(*graph, strict);
      PrintedKernel printed = print_kernel(kernel, host_target().vector_bytes);
      found.groups.push_back({graph, std::move(kernel), std::move(printed), {}});
    } catch (const InternalError& error) {
      found.left.push_back(name + ": " + error.what());
      ++found.failed;
    }
  }
  return found;
}

}  // namespace ahead::native
