#include "passes/random_states.h"

#include <ATen/Context.h>

#include <limits>
#include <map>
#include <optional>

#include "ir/sizes/sized_constants.h"
#include "ir/slots.h"
#include "ops/facts/facts.h"
#include "ops/facts/node_facts.h"
#include "random/generator_state.h"
#include "random/random_form.h"

namespace ahead::passes {
namespace {

/// A state as values of a graph.
struct NamedState {
  Value* seed = nullptr;
  Value* offset = nullptr;
};

at::Device device_of(const Node& node) {
  for (const Value* result : node.results()) {
    if (result != nullptr) return result->meta.device;
  }
  return at::kCPU;
}

bool reads_state(const Node& node) {
  return &node.op() == &generator_state_operator();
}

bool sets_state(const Node& node) {
  return &node.op() == &set_generator_state_operator();
}

at::Device device_of_state(const Node& node) {
  return node.args().back().constant().toDevice();
}

/// Whether the operator is told to draw from a generator that is not the default one.
bool has_own_generator(const Node& node) {
  const int64_t at = generator_argument(node.op());
  if (at < 0) return false;
  const c10::IValue& generator = node.args()[static_cast<size_t>(at)].constant();
  if (generator.isNone()) return false;
  return !generator.isGenerator() ||
         generator.toGenerator() != at::globalContext().defaultGenerator(device_of(node));
}

void take_surroundings(Node& to, const Node& from) {
  constexpr auto random = static_cast<uint16_t>(Tag::Random);
  constexpr auto effect = static_cast<uint16_t>(Tag::Effect);
  to.belong_to(from);
  to.set_tags(static_cast<uint16_t>(from.tags() & ~random & ~effect));
}

/// Tags say what becomes of results; a read or a write of the generator happens once.
void place_with(Node& to, const Node& from) {
  to.belong_to(from);
  to.set(Tag::Random);
}

int64_t bytes_of(const TensorMeta& meta) {
  const Dim numel = meta.numel();
  return numel.is_fixed() ? numel.fixed() * static_cast<int64_t>(c10::elementSize(meta.dtype))
                          : std::numeric_limits<int64_t>::max() / 16;
}

int64_t bytes_of_results(const Node& node) {
  int64_t bytes = 0;
  for (const Value* result : node.results())
    bytes += result == nullptr ? 0 : bytes_of(result->meta);
  return bytes;
}

int64_t state_bytes(at::Device device) {
  return bytes_of(GeneratorState::seed_meta()) + bytes_of(GeneratorState::offset_meta(device));
}

/// A checkpoint is there to save memory, which a state larger than the numbers would not.
void forget_recompute_tags(Node& node) {
  constexpr auto recompute = static_cast<uint16_t>(static_cast<uint16_t>(Tag::MustRecompute) |
                                                   static_cast<uint16_t>(Tag::PreferRecompute));
  node.set_tags(static_cast<uint16_t>(node.tags() & ~recompute));
}

NamedState add_read(Graph& graph, at::Device device, Node& before) {
  Node* read = graph.add_node(generator_state_operator(), {c10::IValue(device)}, &before);
  place_with(*read, before);
  NamedState state;
  state.seed = graph.add_return(read, GeneratorState::seed_meta());
  state.offset = graph.add_return(read, GeneratorState::offset_meta(device));
  return state;
}

/// The tensor that a node fills with numbers without looking at what it held, as a new one that is
/// made from numbers alone: the backward could not make one like a tensor that it does not have.
void fill_new_memory(Graph& graph, Node& form) {
  static const Operator* const empty_strided = Operator::find("aten.empty_strided");
  if (!ops::fills_first_argument(*drawn_by(form.op())) || !form.args()[2].is_value()) return;
  const Value* filled = form.args()[2].value();
  if (filled->producer() == nullptr || !ops::is_uninitialised(*filled->producer())) return;
  const TensorMeta& meta = filled->meta;
  const c10::IValue none;
  Node* empty = graph.add_node(*empty_strided,
                               {to_constant(meta.sizes), to_constant(meta.strides),
                                c10::IValue(meta.dtype), none, c10::IValue(meta.device), none},
                               &form);
  take_surroundings(*empty, form);
  TensorMeta made = meta;
  made.offset = 0;
  graph.set_argument(&form, 2, graph.add_return(empty, std::move(made)));
}

/// Puts the form of a node that names its state in its place, and returns where that leaves the
/// generator.
NamedState add_form(Graph& graph, Node& node, const NamedState& from) {
  std::vector<Argument> arguments{from.seed, from.offset};
  for (const Argument& argument : node.args()) arguments.push_back(argument);
  const int64_t generator = generator_argument(node.op());
  if (generator >= 0) arguments[static_cast<size_t>(generator) + 2] = Argument(c10::IValue());
  Node* form = graph.add_node(*random_form(node.op()), std::move(arguments), &node);
  take_surroundings(*form, node);
  fill_new_memory(graph, *form);
  if (bytes_of_results(node) <= state_bytes(device_of(node))) forget_recompute_tags(*form);
  const bool writes = node.op().schema().is_mutable();
  for (Value* result : node.results()) {
    // A node that writes has an undefined result for the argument that it returns.
    if (result == nullptr && writes) continue;
    Value* same =
        graph.add_return(form, result == nullptr ? std::nullopt : std::optional(result->meta));
    if (result != nullptr) graph.replace_uses(result, same);
  }
  return {from.seed, graph.add_return(form, GeneratorState::offset_meta(device_of(node)))};
}

Node* add_write(Graph& graph, const NamedState& state, at::Device device, const Node& after) {
  Node* write = graph.add_node(set_generator_state_operator(),
                               {state.seed, state.offset, c10::IValue(device)}, after.next());
  place_with(*write, after);
  write->set(Tag::Effect);
  return write;
}

/// Goes through a graph and hands states on from node to node.
class StateNamer {
 public:
  StateNamer(Graph& graph, const std::function<bool(const Node&)>& is_wanted, HandOn hand_on)
      : graph_(graph), is_wanted_(is_wanted), hand_on_(hand_on) {}

  size_t run() {
    for (Node* node = graph_.first(); node != nullptr;) {
      Node* next = node->next();
      visit(*node);
      node = next;
    }
    return changes_;
  }

 private:
  /// What is known after the last node that named its state, and how the generator is told.
  struct Known {
    NamedState state;
    Node* write;
    Phase phase;
  };

  void visit(Node& node) {
    if (!draws_by_default(node) || !is_wanted_(node)) {
      if (ops::is_ordered(node)) known_.clear();
      return;
    }
    const at::Device device = device_of(node);
    const auto known = known_.find(device);
    NamedState state;
    if (known != known_.end() && known->second.phase == node.phase) {
      state = known->second.state;
      graph_.erase(known->second.write);
    } else {
      state = add_read(graph_, device, node);
    }
    state = add_form(graph_, node, state);
    Node* write = add_write(graph_, state, device, node);
    if (hand_on_ == HandOn::States) known_[device] = {state, write, node.phase};
    graph_.erase(&node);
    ++changes_;
  }

  struct ByIndex {
    bool operator()(at::Device a, at::Device b) const {
      return std::pair(a.type(), a.index()) < std::pair(b.type(), b.index());
    }
  };

  Graph& graph_;
  const std::function<bool(const Node&)>& is_wanted_;
  const HandOn hand_on_;
  std::map<at::Device, Known, ByIndex> known_;
  size_t changes_ = 0;
};

/// Whether nothing but one node takes a value.
bool is_only_for(const Value* value, const Node* user) {
  if (value->output_uses() != 0) return false;
  for (const Node* other : value->users()) {
    if (other != user) return false;
  }
  return true;
}

/// A form with the nodes that read the generator before it and set it after it.
struct Draw {
  Node* read;
  Node* form;
  Node* write;
};

std::optional<Draw> find_draw(Node& form) {
  if (drawn_by(form.op()) == nullptr) return std::nullopt;
  Value* const offset = form.results().back();
  Node* write = offset->users().empty() ? nullptr : offset->users()[0];
  if (write == nullptr || !sets_state(*write) || !is_only_for(offset, write)) return std::nullopt;
  Node* read = form.args()[1].value()->producer();
  if (read == nullptr || !reads_state(*read) || write->args()[0].value() != read->result(0))
    return std::nullopt;
  // Something that draws in between would have to find the generator as it is there.
  for (const Node* node = read->next(); node != write; node = node->next()) {
    if (node == nullptr || ops::is_ordered(*node)) return std::nullopt;
  }
  return Draw{read, &form, write};
}

/// Whether something else than the form and the write takes the state that is read.
bool is_needed_besides(const Draw& draw) {
  for (const Value* value : draw.read->results()) {
    if (value->output_uses() != 0) return true;
    for (const Node* user : value->users()) {
      if (user != draw.form && user != draw.write) return true;
    }
  }
  return false;
}

bool try_to_draw_directly(Graph& graph, Node& form) {
  const std::optional<Draw> draw = find_draw(form);
  if (!draw) return false;
  const Operator* op = drawn_by(form.op());
  const bool tells = is_needed_besides(*draw);
  if (tells) op = telling_form(*op);
  if (op == nullptr || drawn_by(form.op())->schema().is_mutable()) return false;
  Node* node = graph.add_node(*op, {form.args().begin() + 2, form.args().end()}, &form);
  take_surroundings(*node, form);
  node->set(Tag::Random);
  for (size_t i = 0; i + 1 < form.results().size(); ++i) {
    Value* result = form.result(i);
    Value* same =
        graph.add_return(node, result == nullptr ? std::nullopt : std::optional(result->meta));
    if (result != nullptr) graph.replace_uses(result, same);
  }
  graph.erase(draw->write);
  graph.erase(&form);
  if (tells) {
    for (Value* state : draw->read->results())
      graph.replace_uses(state, graph.add_return(node, state->meta));
  }
  graph.erase(draw->read);
  return true;
}

/// Puts slots in place of what reads and sets default generators.
class SlotMaker {
 public:
  explicit SlotMaker(Graph& graph)
      : graph_(graph), is_backward_half_(!names_own_positions(graph)) {}

  size_t run() {
    for (Node* node = graph_.first(); node != nullptr;) {
      Node* next = node->next();
      visit(*node);
      node = next;
    }
    for (const auto& [slot, known] : known_) {
      if (!known.is_changed) continue;
      if (known.has_outsider) {
        add_write(graph_, known.state, device_of_random_slot(slot), *graph_.last());
        continue;
      }
      graph_.add_output(known.state.offset, {Slot::Kind::Offset, slot});
      if (known.state.seed != known.seed)
        graph_.add_output(known.state.seed, {Slot::Kind::Seed, slot});
    }
    return changes_;
  }

 private:
  struct Known {
    NamedState state;
    Value* seed = nullptr;  ///< the input
    bool is_changed = false;
    bool has_outsider = false;  ///< a node draws from the generator itself
  };

  void visit(Node& node) {
    if (is_outsider(node)) {
      draw_outside(node);
      return;
    }
    if (reads_state(node)) {
      const Known& known = find(device_of_state(node), node);
      graph_.replace_uses(node.result(0), known.state.seed);
      graph_.replace_uses(node.result(1), known.state.offset);
    } else if (sets_state(node)) {
      Known& known = find(device_of_state(node), node);
      known.state = {node.args()[0].value(), node.args()[1].value()};
      known.is_changed = true;
    } else if (draws_by_default(node)) {
      Known& known = find(device_of(node), node);
      known.state = add_form(graph_, node, known.state);
      known.is_changed = true;
    } else {
      return;
    }
    graph_.erase(&node);
    ++changes_;
  }

  /// Whether a node draws from a default generator, but has no form that names its state.
  static bool is_outsider(const Node& node) {
    if (reads_state(node) || sets_state(node) || draws_by_default(node)) return false;
    if (!node.op().in_dispatcher()) return ops::is_random(node);
    return node.has(Tag::Random) && has_generator_state(device_of(node)) &&
           !has_own_generator(node);
  }

  /// Lets such a node find the generator as it should be, and goes on from where it leaves it.
  void draw_outside(Node& node) {
    const at::Device device = device_of(node);
    Known& known = known_[slot_of(device, node)];
    if (known.is_changed) add_write(graph_, known.state, device, *node.prev());
    Node* next = node.next();
    // At the end nothing is left that would need the state.
    known.state = next == nullptr ? NamedState() : add_read(graph_, device, *next);
    known.seed = known.state.seed;
    known.is_changed = false;
    known.has_outsider = true;
  }

  int32_t slot_of(at::Device device, const Node& node) const {
    return random_slot(device, is_backward_half_ ? Phase::Backward : node.phase);
  }

  Known& find(at::Device device, const Node& node) {
    const int32_t slot = slot_of(device, node);
    Known& known = known_[slot];
    if (known.seed != nullptr) return known;
    known.seed = graph_.add_input({Slot::Kind::Seed, slot}, GeneratorState::seed_meta());
    Value* offset =
        graph_.add_input({Slot::Kind::Offset, slot}, GeneratorState::offset_meta(device));
    known.state = {known.seed, offset};
    return known;
  }

  Graph& graph_;
  const bool is_backward_half_;
  std::map<int32_t, Known> known_;
  size_t changes_ = 0;
};

}  // namespace

bool is_worth_drawing_again(const Node& node) {
  const bool is_checkpointed = node.has(Tag::MustRecompute) || node.has(Tag::PreferRecompute);
  return is_checkpointed && node.phase == Phase::Forward &&
         bytes_of_results(node) > state_bytes(device_of(node));
}

bool draws_by_default(const Node& node) {
  if (!node.has(Tag::Random) || !node.op().in_dispatcher()) return false;
  if (reads_state(node) || sets_state(node) || !ops::facts(node.op()).random) return false;
  return has_generator_state(device_of(node)) && !has_own_generator(node) &&
         random_form(node.op()) != nullptr;
}

size_t name_states(Graph& graph, const std::function<bool(const Node&)>& is_wanted,
                   HandOn hand_on) {
  return StateNamer(graph, is_wanted, hand_on).run();
}

size_t draw_directly(Graph& graph) {
  size_t changes = 0;
  for (Node* node = graph.first(); node != nullptr;) {
    Node* next = node->next();
    // The node after a form may be the write that goes with it.
    if (next != nullptr && sets_state(*next)) next = next->next();
    changes += try_to_draw_directly(graph, *node) ? 1 : 0;
    node = next;
  }
  return changes;
}

size_t functionalize_random(Graph& graph) {
  return SlotMaker(graph).run();
}

int32_t random_slot(at::Device device, Phase phase) {
  const int32_t number = device.is_cpu() ? 0 : device.index() + 1;
  return 2 * number + (phase == Phase::Backward ? 1 : 0);
}

at::Device device_of_random_slot(int32_t index) {
  const int32_t number = index / 2;
  if (number == 0) return at::kCPU;
  return {at::kCUDA, static_cast<at::DeviceIndex>(number - 1)};
}

}  // namespace ahead::passes
