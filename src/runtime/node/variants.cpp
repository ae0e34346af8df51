#include "runtime/node/variants.h"

#include <atomic>

namespace ahead::runtime {
namespace {

uint64_t next_id() {
  static std::atomic<uint64_t> next = 0;
  return next++;
}

}  // namespace

BackwardVariants::BackwardVariants(const Graph& graph, Order order)
    : id_(next_id()), order_(std::move(order)) {
  for (const Graph::Input& input : graph.inputs()) {
    const bool is_tangent = input.slot.kind == Slot::Kind::Tangent;
    (is_tangent ? tangents_ : saved_).push_back(input.value->meta);
  }
}

}  // namespace ahead::runtime
