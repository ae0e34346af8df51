#include <algorithm>
#include <numeric>
#include <tuple>
#include <unordered_map>

#include "derivative/backward_program.h"
#include "ops/facts/aliasing.h"
#include "ops/facts/sparse_values.h"

/// When the gradients of a backward graph are made.
namespace ahead::compiling {
namespace {

/// For each node by position, where the autograd node that called it ends: eager hands gradients
/// over when a whole autograd node has run.
class Positions {
 public:
  explicit Positions(const Graph& graph) {
    std::unordered_map<int64_t, size_t> ends;
    size_t position = 0;
    for (const Node& node : graph.nodes()) {
      at_[&node] = ++position;
      if (is_of_autograd_node(node)) ends[node.sequence] = position;
    }
    for (auto& [node, at] : at_)
      end_[node] = is_of_autograd_node(*node) ? ends.at(node->sequence) : at;
  }

  size_t at(const Node* node) const { return node == nullptr ? 0 : at_.at(node); }
  size_t end(const Node* node) const { return node == nullptr ? 0 : end_.at(node); }
  size_t end(const Graph::Output& output) const {
    return output.value == nullptr ? 0 : end(output.value->producer());
  }

 private:
  static bool is_of_autograd_node(const Node& node) {
    return node.phase == Phase::Backward && node.provenance != nullptr && node.sequence >= 0;
  }

  std::unordered_map<const Node*, size_t> at_, end_;
};

/// Where in its node's results a gradient stands.
size_t number_of(const Value* value) {
  if (value == nullptr || value->producer() == nullptr) return 0;
  const auto& results = value->producer()->results();
  return static_cast<size_t>(std::find(results.begin(), results.end(), value) - results.begin());
}

/// How large a value is; for the sizes of the trace, where these change.
int64_t bytes_of(const Value& value, const Graph& graph) {
  return value.meta.numel().at(graph.example_sizes()) *
         static_cast<int64_t>(c10::elementSize(value.meta.dtype));
}

/// How much memory is in use while each node of a backward graph runs, if gradients are handed over
/// at once. What others hold does not count.
class MemoryInUse {
 public:
  MemoryInUse(const Graph& graph, const Positions& positions, const std::vector<bool>& donated)
      : graph_(graph), aliasing_(graph), sparse_(graph), memories_(graph.value_capacity()) {
    size_t saved = 0;
    for (const Graph::Input& input : graph.inputs()) {
      const bool is_tangent = input.slot.kind == Slot::Kind::Tangent;
      const size_t number = is_tangent ? 0 : saved++;
      use(input.value, 0);
      memory(input.value).is_held |= !is_tangent && (number >= donated.size() || !donated[number]);
    }
    for (const Node& node : graph.nodes()) {
      node.for_each_operand([&](const Value* value) { use(value, positions.at(&node)); });
      for (const Value* result : node.results()) use(result, positions.at(&node));
    }
    add_up(graph.num_nodes());
  }

  /// All that nodes read and write.
  int64_t all() const { return all_; }
  /// After this node a gradient may be handed over.
  size_t last_use(const Value* value) const { return memories_[aliasing_.group(value)].last; }
  /// What a gradient takes that waits to be handed over.
  int64_t waiting(const Value* value) const {
    return sparse_.contains(value) ? memories_[aliasing_.group(value)].bytes : bytes(value);
  }
  int64_t most() const { return *std::max_element(in_use_.begin(), in_use_.end()); }
  /// The most while the nodes behind `begin`, up to `end`, run.
  int64_t most(size_t begin, size_t end) const {
    int64_t most = 0;
    for (size_t i = begin + 1; i <= end; ++i) most = std::max(most, in_use_[i]);
    return most;
  }

 private:
  struct Memory {
    size_t first = 0, last = 0;
    int64_t bytes = -1;    ///< -1: not met yet
    bool is_held = false;  ///< by others
  };

  /// A sparse tensor has the memory of what it is made of.
  int64_t bytes(const Value* value) const {
    return sparse_.contains(value) ? 0 : bytes_of(*value, graph_);
  }

  Memory& memory(const Value* value) { return memories_[aliasing_.group(value)]; }

  void use(const Value* value, size_t position) {
    if (value == nullptr) return;
    Memory& used = memory(value);
    if (used.bytes < 0) used.first = position;
    if (position != 0) all_ += bytes(value);
    used.last = position;
    used.bytes = std::max(used.bytes, bytes(value));
  }

  void add_up(size_t num_nodes) {
    in_use_.assign(num_nodes + 2, 0);
    for (const Memory& used : memories_) {
      if (used.bytes <= 0 || used.is_held) continue;
      in_use_[used.first] += used.bytes;
      in_use_[used.last + 1] -= used.bytes;
    }
    std::partial_sum(in_use_.begin(), in_use_.end(), in_use_.begin());
  }

  const Graph& graph_;
  const ops::Aliasing aliasing_;
  const ops::SparseValues sparse_;
  std::vector<Memory> memories_;  ///< by group of values that share it
  std::vector<int64_t> in_use_;   ///< by position
  int64_t all_ = 0;
};

/// Lets gradients wait for each other as long as that takes no more memory than is in use anyway at
/// some time; in large graphs clearly less, as operators need some of which the graph does not
/// tell.
std::vector<bool> find_ends(const Graph& graph, const std::vector<int32_t>& order,
                            const Positions& positions, const std::vector<bool>& donated) {
  std::vector<bool> ends(order.size());
  if (order.empty()) return ends;
  const MemoryInUse memory(graph, positions, donated);
  const auto made_at = [&](size_t i) {
    const Graph::Output& output = graph.outputs()[static_cast<size_t>(order[i])];
    const size_t end = positions.end(output);
    return output.value == nullptr ? end : std::max(end, memory.last_use(output.value));
  };
  // A link takes as long as some hundred kilobytes take to be read.
  const bool is_large = memory.all() / static_cast<int64_t>(order.size()) > 1 << 20;
  const int64_t allowed = memory.most() - (is_large ? memory.most() / 8 : 0);
  int64_t waiting = 0;
  for (size_t i = 0; i + 1 < order.size(); ++i) {
    const Value* value = graph.outputs()[static_cast<size_t>(order[i])].value;
    if (value != nullptr) waiting += memory.waiting(value);
    ends[i] = waiting + memory.most(made_at(i), made_at(i + 1)) > allowed;
    if (ends[i]) waiting = 0;
  }
  return ends;
}

/// The engine keeps nodes that are ready in a heap. Accumulations that one node makes ready are
/// equal there, and come out in the order that follows from how heaps are made.
void order_as_heap(std::vector<int32_t>::iterator begin, std::vector<int32_t>::iterator end) {
  const auto all_equal = [](int32_t, int32_t) { return false; };
  for (auto next = begin; next != end; ++next) std::push_heap(begin, next + 1, all_equal);
  std::vector<int32_t> popped;
  for (auto last = end; last != begin; --last) {
    std::pop_heap(begin, last, all_equal);
    popped.push_back(*(last - 1));
  }
  std::copy(popped.begin(), popped.end(), begin);
}

}  // namespace

std::vector<size_t> find_edges(const JointGraph& joint) {
  std::unordered_map<int64_t, std::vector<const Value*>> operands;  // by autograd node
  for (const Node& node : joint.nodes()) {
    if (node.phase == Phase::Backward) continue;
    node.for_each_operand([&](const Value* value) { operands[node.sequence].push_back(value); });
  }
  std::vector<size_t> edges;
  for (const Graph::Output& output : joint.outputs()) {
    if (output.slot.kind != Slot::Kind::GradOf) continue;
    const Node* node = output.value == nullptr ? nullptr : output.value->producer();
    const auto& of_node = operands[node == nullptr ? -1 : node->sequence];
    const Value* input = joint.inputs()[static_cast<size_t>(output.slot.index)].value;
    edges.push_back(
        static_cast<size_t>(std::find(of_node.begin(), of_node.end(), input) - of_node.begin()));
  }
  return edges;
}

BackwardProgram::Order find_order(const Graph& backward, const std::vector<size_t>& edges,
                                  const std::vector<bool>& donated) {
  const Positions positions(backward);
  const auto& outputs = backward.outputs();
  const auto end_of = [&](int32_t i) { return positions.end(outputs[static_cast<size_t>(i)]); };
  const auto key = [&](int32_t i) {
    const Value* value = outputs[static_cast<size_t>(i)].value;
    const auto place = static_cast<size_t>(i);
    return std::tuple(end_of(i), place < edges.size() ? edges[place] : 0,
                      value == nullptr ? 0 : positions.at(value->producer()), number_of(value));
  };
  BackwardProgram::Order order;
  order.places.resize(outputs.size());
  std::iota(order.places.begin(), order.places.end(), 0);
  std::stable_sort(order.places.begin(), order.places.end(),
                   [&](int32_t a, int32_t b) { return key(a) < key(b); });
  for (auto begin = order.places.begin(); begin != order.places.end();) {
    const auto end = std::find_if(begin, order.places.end(),
                                  [&](int32_t i) { return end_of(i) != end_of(*begin); });
    order_as_heap(begin, end);
    begin = end;
  }
  order.is_end = find_ends(backward, order.places, positions, donated);
  return order;
}

}  // namespace ahead::compiling
