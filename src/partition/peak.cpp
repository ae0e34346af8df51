#include <algorithm>
#include <vector>

#include "ahead/partition.h"
#include "ops/facts/aliasing.h"
#include "ops/facts/facts.h"
#include "partition/cost.h"

namespace ahead {
namespace {

/// Simulates the memory that a run of a graph takes.
class MemorySimulation {
 public:
  explicit MemorySimulation(const Graph& graph, const std::vector<std::string>* fused = nullptr)
      : graph_(graph), fused_(fused), aliasing_(graph), last_use_(graph.value_capacity(), -1) {}

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
        if (result != nullptr && !aliasing_.is_view(result) && !stays_in_kernel(*result))
          allocate(*result, position);
      }
      peak_ = std::max(peak_, used_);
      used_ -= freed_after_[static_cast<size_t>(position++)];
    }
    return peak_;
  }

 private:
  bool is_fused(const Node& node) const {
    const ops::OpClass op_class = ops::facts(node.op()).op_class;
    return op_class == ops::OpClass::Pointwise || op_class == ops::OpClass::Reduction ||
           std::find(fused_->begin(), fused_->end(), node.op().name()) != fused_->end();
  }

  /// Whether only such operators make and read a value as are computed in one pass, so that it is
  /// never there as a whole.
  bool stays_in_kernel(const Value& value) const {
    return fused_ != nullptr && is_fused(*value.producer()) && is_read_in_kernels(value);
  }
  bool is_read_in_kernels(const Value& value) const {
    return value.output_uses() == 0 &&
           std::all_of(value.users().begin(), value.users().end(), [&](const Node* user) {
             return ops::is_layout_view(*user) ? is_read_in_kernels(*user->result())
                                               : is_fused(*user);
           });
  }

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
  const std::vector<std::string>* const fused_;  ///< null: every value takes memory
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

std::vector<bool> kept_in_backward(const PartitionedGraphs& halves) {
  std::vector<bool> kept = kept_by_caller(halves.backward);
  for (size_t i = 0; i < halves.saved.size(); ++i) kept[i] = halves.saved[i].input >= 0;
  return kept;
}

}  // namespace

int64_t peak_bytes(const Graph& graph) {
  return MemorySimulation(graph).run(kept_by_caller(graph));
}

int64_t PartitionedGraphs::peak_bytes() const {
  return std::max(ahead::peak_bytes(forward),
                  MemorySimulation(backward).run(kept_in_backward(*this)));
}

int64_t partition::peak_with_kernels(const PartitionedGraphs& halves,
                                     const std::vector<std::string>& fused) {
  return std::max(MemorySimulation(halves.forward, &fused).run(kept_by_caller(halves.forward)),
                  MemorySimulation(halves.backward, &fused).run(kept_in_backward(halves)));
}

}  // namespace ahead
