#include <algorithm>
#include <vector>

#include "ahead/partition.h"
#include "ops/facts/aliasing.h"
#include "partition/cost.h"

namespace ahead {
namespace {

/// Simulates the memory that a run of a graph takes.
class MemorySimulation {
 public:
  explicit MemorySimulation(const Graph& graph)
      : graph_(graph), aliasing_(graph), last_use_(graph.value_capacity(), -1) {}

  /// `is_kept` says of each input whether the caller keeps it alive, so that it is not counted.
  int64_t run(const std::vector<bool>& is_kept) {
    find_last_uses();
    freed_after_.resize(graph_.num_nodes());
    for (size_t i = 0; i < is_kept.size(); ++i) {
      if (!is_kept[i]) allocate(*graph_.inputs()[i].value, 0);
    }
    peak_ = used_;
    int64_t position = 0;
    for (const Node& node : graph_.nodes()) {
      for (const Value* result : node.results()) {
        if (result != nullptr && !aliasing_.is_view(result)) allocate(*result, position);
      }
      peak_ = std::max(peak_, used_);
      used_ -= freed_after_[static_cast<size_t>(position++)];
    }
    return peak_;
  }

 private:
  void find_last_uses() {
    int64_t position = 0;
    for (const Node& node : graph_.nodes()) {
      node.for_each_operand([&](const Value* value) { last_use(value) = position; });
      ++position;
    }
    for (const Graph::Output& output : graph_.outputs()) {
      if (output.value != nullptr) last_use(output.value) = position;
    }
  }

  int64_t& last_use(const Value* value) { return last_use_[aliasing_.base(value)->id()]; }

  /// A value without uses is freed after the node at `position`.
  void allocate(const Value& value, int64_t position) {
    const int64_t bytes = partition::storage_bytes(value.meta, graph_.example_sizes());
    const auto end = static_cast<size_t>(std::max(last_use(&value), position));
    used_ += bytes;
    if (end < freed_after_.size()) freed_after_[end] += bytes;
  }

  const Graph& graph_;
  const ops::Aliasing aliasing_;
  std::vector<int64_t> last_use_;     ///< by Value::id() of the base
  std::vector<int64_t> freed_after_;  ///< bytes, by position of the node
  int64_t used_ = 0;
  int64_t peak_ = 0;
};

std::vector<bool> kept_by_caller(const Graph& graph) {
  std::vector<bool> kept;
  for (const Graph::Input& input : graph.inputs()) {
    const Slot::Kind kind = input.slot.kind;
    kept.push_back(kind != Slot::Kind::Saved && kind != Slot::Kind::Tangent);
  }
  return kept;
}

}  // namespace

int64_t peak_bytes(const Graph& graph) {
  return MemorySimulation(graph).run(kept_by_caller(graph));
}

int64_t PartitionedGraphs::peak_bytes() const {
  std::vector<bool> kept = kept_by_caller(backward);
  for (size_t i = 0; i < saved.size(); ++i) kept[i] = saved[i].input >= 0;
  return std::max(ahead::peak_bytes(forward), MemorySimulation(backward).run(kept));
}

}  // namespace ahead
