#include <algorithm>
#include <numeric>
#include <tuple>
#include <unordered_map>

#include "derivative/backward_program.h"
#include "ops/facts/aliasing.h"

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

/// How large a gradient is; for the sizes of the trace, where these change.
int64_t bytes_of(const TensorMeta& meta, const Graph& graph) {
  return meta.numel().at(graph.example_sizes()) *
         static_cast<int64_t>(c10::elementSize(meta.dtype));
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

BackwardProgram::Order find_order(const Graph& backward) {
  const Positions positions(backward);
  const auto& outputs = backward.outputs();
  const auto end_of = [&](int32_t i) { return positions.end(outputs[static_cast<size_t>(i)]); };
  const auto key = [&](int32_t i) {
    const Value* value = outputs[static_cast<size_t>(i)].value;
    return std::tuple(end_of(i), value == nullptr ? 0 : positions.at(value->producer()),
                      number_of(value));
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
  for (const int32_t place : order.places) {
    const Value* value = outputs[static_cast<size_t>(place)].value;
    order.bytes.push_back(value == nullptr ? 0 : bytes_of(value->meta, backward));
  }
  return order;
}

std::vector<size_t> find_last_reads(const Graph& backward, const BackwardProgram::Order& order) {
  const Positions positions(backward);
  std::vector<size_t> made;  // after which node each gradient of the order is made
  for (const int32_t place : order.places) {
    const size_t end = positions.end(backward.outputs()[static_cast<size_t>(place)]);
    made.push_back(made.empty() ? end : std::max(made.back(), end));
  }
  const ops::Aliasing aliasing(backward);
  std::vector<size_t> read(backward.value_capacity());  // by group: the last node that reads it
  for (const Node& node : backward.nodes()) {
    node.for_each_operand(
        [&](const Value* value) { read[aliasing.group(value)] = positions.at(&node); });
  }
  std::vector<size_t> last_reads;
  for (const Graph::Input& input : backward.inputs()) {
    const auto first_made =
        std::lower_bound(made.begin(), made.end(), read[aliasing.group(input.value)]);
    last_reads.push_back(static_cast<size_t>(first_made - made.begin()));
  }
  return last_reads;
}

}  // namespace ahead::compiling
