#include "partition/min_cut.h"

#include "ahead/errors.h"
#include "partition/cost.h"
#include "partition/max_flow.h"

namespace ahead::partition {
namespace {

/// The flow network of a joint graph. A cut edge is a saved value; the nodes on the sink's side are
/// those that the backward computes.
///
///     source ──∞──► inputs, nodes that run once      value: in ──bytes──► out
///     node ──∞──► its results ──∞──► nodes that take them
///     operands of nodes of the backward ──∞──► sink
class Network {
 public:
  Network(const JointFacts& joint, const std::vector<Ruling>& rulings,
          const std::vector<bool>& is_static)
      : joint_(joint),
        rulings_(rulings),
        is_static_(is_static),
        unit_(4 * static_cast<int64_t>(joint.graph.value_capacity()) + 1),
        out_(joint.graph.value_capacity(), -1),
        place_(joint.nodes.size(), -1),
        source_(flow_.add_node()),
        sink_(flow_.add_node()) {}

  std::vector<Verdict> run() {
    for (const Graph::Input& input : joint_.graph.inputs()) add_input(input);
    for (size_t i = 0; i < joint_.nodes.size(); ++i) {
      if (!joint_.roles[i].serves_backward) continue;
      if (joint_.roles[i].in_backward) {
        joint_.nodes[i]->for_each_operand([&](const Value* value) { connect(value, sink_); });
      } else {
        add_node(i);
      }
    }
    for (const Graph::Output& output : joint_.graph.outputs()) {
      if (output.value != nullptr && !is_forward_output(output)) connect(output.value, sink_);
    }
    if (flow_.run(source_, sink_) >= MaxFlow::kInfinite) {
      throw InternalError("partition",
                          "no cut: something can neither be saved nor computed again.");
    }
    return read_verdicts();
  }

 private:
  /// Values that only the backward can compute are not in the network.
  void connect(const Value* value, int32_t to) {
    const int32_t out = out_[value->id()];
    if (out >= 0) flow_.add_edge(out, to, MaxFlow::kInfinite);
  }

  /// Adds the edge that is cut if the value is saved; returns its start.
  int32_t add_value(const Value& value, int64_t capacity) {
    const int32_t in = flow_.add_node();
    out_[value.id()] = flow_.add_node();
    flow_.add_edge(in, out_[value.id()], capacity);
    return in;
  }

  /// Bytes count first. Among equals an input is better than an intermediate, which takes memory of
  /// its own, and that is better than a copy.
  int64_t capacity(const Value& value) const {
    const bool input = value.producer() == nullptr;
    const bool copied = joint_.overwritten[value.id()];
    if (input && !copied && is_static_[value.index()]) return 1;
    const int64_t rank = copied ? 3 : input ? 1 : 2;
    const int64_t bytes = storage_bytes(value.meta, joint_.graph.example_sizes());
    return bytes >= MaxFlow::kInfinite / unit_ / 2 ? MaxFlow::kInfinite / 2 : bytes * unit_ + rank;
  }

  void add_input(const Graph::Input& input) {
    if (input.slot.kind == Slot::Kind::Tangent) return;
    flow_.add_edge(source_, add_value(*input.value, capacity(*input.value)), MaxFlow::kInfinite);
  }

  bool runs_once(size_t node) const {
    const bool of_backward = joint_.nodes[node]->phase == Phase::Backward;
    const Role& role = joint_.roles[node];
    if (role.never_in_backward || role.is_read_later) return true;
    // It runs once in any case, in the forward or in the backward.
    if (of_backward && !role.in_forward) return false;
    return rulings_[node].again == Again::Never || rulings_[node].again == Again::Expensive;
  }

  void add_node(size_t index) {
    const Node& node = *joint_.nodes[index];
    const bool once = runs_once(index);
    const Again again = rulings_[index].again;
    const bool never_saved = !once && (again == Again::View || again == Again::Must);
    const int32_t place = place_[index] = flow_.add_node();
    if (once) {
      flow_.add_edge(source_, place, MaxFlow::kInfinite);
    } else {
      node.for_each_operand([&](const Value* value) { connect(value, place); });
    }
    for (const Value* result : node.results()) {
      if (result == nullptr) continue;
      const int64_t width = never_saved ? MaxFlow::kInfinite : capacity(*result);
      flow_.add_edge(place, add_value(*result, width), MaxFlow::kInfinite);
    }
  }

  std::vector<Verdict> read_verdicts() const {
    const std::vector<bool> in_backward = flow_.sink_side(sink_);
    std::vector<Verdict> verdicts(joint_.nodes.size());
    for (size_t i = 0; i < verdicts.size(); ++i) {
      if (place_[i] < 0) continue;
      verdicts[i].compute_in_backward = in_backward[static_cast<size_t>(place_[i])];
      const bool chosen = !verdicts[i].compute_in_backward && !runs_once(i);
      verdicts[i].reason = chosen ? "what it is made from takes more memory" : rulings_[i].reason;
    }
    return verdicts;
  }

  const JointFacts& joint_;
  const std::vector<Ruling>& rulings_;
  const std::vector<bool>& is_static_;
  const int64_t unit_;  ///< the capacity of a byte
  MaxFlow flow_;
  std::vector<int32_t> out_;    ///< the end of the value's edge; by Value::id()
  std::vector<int32_t> place_;  ///< the place of each node in the network; -1: none
  const int32_t source_, sink_;
};

}  // namespace

std::vector<Verdict> min_cut_verdicts(const JointFacts& joint, const std::vector<Ruling>& rulings,
                                      const std::vector<bool>& is_static) {
  return Network(joint, rulings, is_static).run();
}

}  // namespace ahead::partition
