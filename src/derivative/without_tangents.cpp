#include <algorithm>
#include <unordered_set>
#include <vector>

#include "ahead/errors.h"
#include "derivative/backward_program.h"
#include "ir/layout_copy.h"
#include "ir/sizes/sized_constants.h"
#include "ops/facts/node_facts.h"
#include "ops/facts/sparse_values.h"

namespace ahead::compiling {
namespace {

/// What undefined tangents make of a value.
enum class State : uint8_t {
  Independent,  ///< depends on no tangent
  Live,         ///< depends on a defined tangent
  Dead,         ///< depends on undefined tangents only: eager never computes it
};

class TangentRemover {
 public:
  TangentRemover(const Graph& backward, const BackwardProgram::Reach& reach,
                 const BackwardProgram::Mask& defined, const BackwardProgram::Mask& wanted,
                 bool any_layout)
      : graph_(backward),
        reach_(reach.tangents),
        gradients_behind_(reach.gradients_behind),
        leading_(reach.leading),
        defined_(defined),
        wanted_(wanted),
        any_layout_(any_layout),
        sparse_(graph_),
        states_(graph_.value_capacity(), State::Independent) {
    size_t tangent = 0;
    for (const Graph::Input& input : graph_.inputs()) {
      if (input.slot.kind != Slot::Kind::Tangent) continue;
      state(input.value) = defined[tangent++] ? State::Live : State::Dead;
    }
  }

  Graph run() {
    for (const Graph::Output& output : graph_.outputs())
      had_gradient_.push_back(output.value != nullptr);
    for (Node& node : graph_.nodes()) visit(node);
    for (size_t i = 0; i < graph_.outputs().size(); ++i) {
      Value* value = graph_.outputs()[i].value;
      if (value == nullptr) continue;
      if (!wanted_[i] || state(value) == State::Dead || is_out_of_reach(i, value))
        graph_.set_output(i, nullptr);
    }
    erase_unused();
    return std::move(graph_);
  }

 private:
  State& state(const Value* value) {
    if (value->id() >= states_.size()) states_.resize(value->id() + 1, State::Independent);
    return states_[value->id()];
  }

  void visit(Node& node) {
    bool has_live = false, has_dead = false;
    node.for_each_operand([&](Value* value) {
      has_live |= state(value) == State::Live || is_arriving(*value, node);
      has_dead |= state(value) == State::Dead;
    });
    const bool is_mixed = has_dead && (has_live || is_partly_dead_addition(node));
    const bool is_sum = is_mixed && is_sum_of_gradients(node);
    const bool is_dead = (has_dead && !is_mixed) || (!has_live && !is_sum && !is_reached(node));
    if (is_dead) dead_.insert(&node);
    const State result = is_dead ? State::Dead : has_live ? State::Live : State::Independent;
    for (Value* value : node.results()) {
      if (value != nullptr) state(value) = result;
    }
    if (is_mixed && !is_dead && !skip_addition(node)) materialise_zeros(node);
  }

  /// Whether a value is a gradient that depends on no tangent (zeros, say), and that eager hands
  /// from one autograd node to the next.
  bool is_arriving(const Value& value, const Node& user) {
    const Node* producer = value.producer();
    if (producer == nullptr || state(&value) != State::Independent) return false;
    return is_known_to_run(*producer) && is_known_to_run(user) &&
           producer->sequence != user.sequence;
  }

  bool is_known_to_run(const Node& node) const {
    return node.phase == Phase::Backward && node.provenance != nullptr &&
           reach_.count(node.sequence) != 0 && is_reached(node);
  }

  /// Whether eager runs the autograd node that a node belongs to, as far as that is known.
  bool is_reached(const Node& node) const {
    if (node.phase != Phase::Backward || node.provenance == nullptr) return true;
    const auto known = reach_.find(node.sequence);
    if (known == reach_.end()) return true;
    for (size_t i = 0; i < defined_.size(); ++i) {
      if (defined_[i] && known->second[i]) return true;
    }
    return false;
  }

  /// Whether a gradient depends on no tangent and eager does not come to its input from those that
  /// are defined. The partitioner may have computed it in the forward, where nothing tells what
  /// reaches it.
  bool is_out_of_reach(size_t gradient, const Value* value) {
    if (gradient >= leading_.size() || state(value) != State::Independent) return false;
    for (size_t i = 0; i < defined_.size(); ++i) {
      if (defined_[i] && leading_[gradient][i]) return false;
    }
    return true;
  }

  static bool is_addition(const Node& node) {
    static const Operator* const add = Operator::find("aten.add.Tensor");
    return &node.op() == add && node.args()[0].is_value() && node.args()[1].is_value();
  }

  bool is_partly_dead_addition(const Node& node) {
    return is_addition(node) && (state(node.args()[0].value()) != State::Dead ||
                                 state(node.args()[1].value()) != State::Dead);
  }

  /// Whether an addition is the engine's, of gradients that reach one tensor. The engine adds after
  /// it ran the last autograd node that sends one, whose sequence number the sum has; the other
  /// gradient comes from another autograd node.
  static bool is_sum_of_gradients(const Node& node) {
    if (!is_addition(node)) return false;
    for (const Argument& argument : {node.args()[0], node.args()[1]}) {
      const Node* producer = argument.value()->producer();
      if (producer != nullptr && producer->phase == Phase::Backward &&
          producer->provenance != nullptr && producer->sequence != node.sequence)
        return true;
    }
    return false;
  }

  /// Puts the live operand of an addition in place of the sum. False if it is no addition, or the
  /// operand cannot stand for the sum.
  bool skip_addition(Node& node) {
    if (!is_addition(node)) return false;
    const bool first_is_dead = state(node.args()[0].value()) == State::Dead;
    Value* live = node.args()[first_is_dead ? 1 : 0].value();
    const TensorMeta& sum = node.result()->meta;
    if (live->meta.sizes != sum.sizes || live->meta.dtype != sum.dtype) return false;
    const bool lies_alike = live->meta.strides == sum.strides || sparse_.contains(live);
    if (!any_layout_ && !lies_alike) {
      // Zeros would be added to negative ones.
      live = copy_like(node, live);
    } else if (!lies_alike) {
      keep_layout_of(node, live);
    }
    graph_.replace_uses(node.result(), live);
    return true;
  }

  /// Lets users that depend on the strides of a sum take a copy of the live gradient with them.
  void keep_layout_of(Node& sum, Value* live) {
    Value* copy = nullptr;
    const auto users = sum.result()->users();
    for (Node* user : users) {
      if (!ops::reads_by_layout(*user) || user->args()[0].value() != sum.result()) continue;
      if (copy == nullptr) copy = copy_like(sum, live);
      graph_.set_argument(user, 0, copy);
    }
  }

  /// The copy counts as made by the autograd node that the gradient is from.
  Value* copy_like(Node& sum, Value* live) {
    Value* copy = add_copy_into(graph_, live, sum.result()->meta, &sum);
    state(copy) = state(live);
    if (const Node* from = live->producer()) copy->producer()->belong_to(*from);
    return copy;
  }

  /// Operators that take several gradients get zeros for those that are undefined, as in eager.
  void materialise_zeros(Node& node) {
    for (size_t i = 0; i < node.args().size(); ++i) {
      graph_.set_argument(&node, i, with_zeros(node.args()[i], node));
    }
  }

  Argument with_zeros(const Argument& argument, Node& user) {
    if (argument.is_value() && state(argument.value()) == State::Dead) {
      return zeros_like(argument.value()->meta, user);
    }
    if (!argument.is_list()) return argument;
    Argument::List list;
    for (const Argument& element : argument.list()) list.push_back(with_zeros(element, user));
    return list;
  }

  Value* zeros_like(const TensorMeta& meta, Node& before) {
    static const Operator* const empty_strided = Operator::find("aten.empty_strided");
    static const Operator* const zeros_like = Operator::find("aten.zeros_like");
    const c10::IValue none;
    Node* empty = graph_.add_node(*empty_strided,
                                  {to_constant(meta.sizes), to_constant(meta.strides),
                                   c10::IValue(meta.dtype), none, c10::IValue(meta.device), none},
                                  &before);
    Value* shape = graph_.add_return(empty, meta);
    Node* zeros = graph_.add_node(*zeros_like, {shape, none, none, none, none, none}, &before);
    return graph_.add_return(zeros, meta);
  }

  /// Random numbers that nobody uses are drawn all the same by the autograd nodes that eager runs.
  /// Which of them it runs is not known where gradients are not wanted.
  bool is_drawn(const Node& node) {
    if (!node.has(Tag::Random)) return false;
    for (const Value* value : node.results()) {
      if (value != nullptr && state(value) == State::Dead) return false;
    }
    return std::all_of(wanted_.begin(), wanted_.end(), [](bool is_wanted) { return is_wanted; });
  }

  bool is_partial() const {
    if (std::find(defined_.begin(), defined_.end(), false) != defined_.end()) return true;
    for (size_t i = 0; i < wanted_.size(); ++i) {
      if (!wanted_[i] && (had_gradient_[i] || is_asked_for(i))) return true;
    }
    return false;
  }

  /// Whether eager's backward has an edge to what gets no gradient: it may be asked for.
  bool is_asked_for(size_t gradient) const {
    return std::any_of(gradients_behind_.begin(), gradients_behind_.end(),
                       [&](const auto& node) { return node.second[gradient]; });
  }

  /// Whether eager would run the custom function that writes to a tensor from outside: a tangent
  /// reaches it, and it leads to a gradient that is wanted.
  bool is_written(const Node& write) {
    if (!is_partial()) return true;
    const auto behind = gradients_behind_.find(write.sequence);
    if (behind == gradients_behind_.end()) {
      throw Unsupported("backward",
                        write.args()[0].value()->meta.str() +
                            ": several custom autograd functions write to this tensor, or read "
                            "what another one wrote, and this backward may not run all of them. "
                            "Ask for all gradients of all results.");
    }
    if (state(write.args()[1].value()) == State::Dead || !is_reached(write)) return false;
    return leads_to_wanted(behind->second);
  }

  bool leads_to_wanted(const std::vector<bool>& gradients) const {
    for (size_t i = 0; i < gradients.size(); ++i) {
      if (wanted_[i] && gradients[i]) return true;
    }
    return false;
  }

  /// Whether eager runs the autograd node that an effect belongs to.
  bool happens(const Node& node) const {
    if (!node.has(Tag::Effect) || dead_.count(&node) != 0) return false;
    const auto behind = gradients_behind_.find(node.sequence);
    if (node.phase != Phase::Backward || behind == gradients_behind_.end()) return true;
    return leads_to_wanted(behind->second);
  }

  void erase_unused() {
    for (Node* node = graph_.last(); node != nullptr;) {
      Node* previous = node->prev();
      bool is_used =
          ops::is_backward_write(*node) ? is_written(*node) : happens(*node) || is_drawn(*node);
      for (const Value* value : node->results()) is_used |= value != nullptr && value->is_used();
      if (!is_used) graph_.erase(node);
      node = previous;
    }
  }

  Graph graph_;
  const BackwardProgram::Reach::Masks &reach_, &gradients_behind_;
  const std::vector<std::vector<bool>>& leading_;
  const BackwardProgram::Mask &defined_, &wanted_;
  const bool any_layout_;
  const ops::SparseValues sparse_;
  std::vector<bool> had_gradient_;
  std::vector<State> states_;
  std::unordered_set<const Node*> dead_;
};

}  // namespace

Graph without_tangents(const Graph& backward, const BackwardProgram::Reach& reach,
                       const BackwardProgram::Mask& defined, const BackwardProgram::Mask& wanted,
                       bool any_layout) {
  return TangentRemover(backward, reach, defined, wanted, any_layout).run();
}

}  // namespace ahead::compiling
