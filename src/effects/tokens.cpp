#include <ATen/EmptyTensor.h>
#include <torch/library.h>

#include "ahead/effect_tokens.h"
#include "ahead/errors.h"
#include "ir/copy.h"
#include "ir/names.h"
#include "ir/sizes/size_reads.h"
#include "ir/slots.h"
#include "ops/facts/facts.h"
#include "ops/facts/node_facts.h"

namespace ahead {
namespace {

constexpr Slot token_slot{Slot::Kind::Token, 0};

const Operator& make_token_operator() {
  static const Operator& op = *Operator::find("ahead.make_token");
  return op;
}

const Operator& sink_token_operator() {
  static const Operator& op = *Operator::find("ahead.sink_token");
  return op;
}

TensorMeta token_meta() {
  return TensorMeta::contiguous({0});
}

/// Whether operands show all that the node does: it only writes to its arguments.
bool only_writes(const Node& node) {
  if (!node.op().in_dispatcher() || ops::facts(node.op()).writes.empty()) return false;
  return !ops::is_custom(node.op()) || node.op().name().starts_with("ahead.");
}

bool needs_token(const Node& node) {
  return ops::has_effect(node) && !only_writes(node);
}

/// Whether it is a call that lift_effect_tokens() made.
bool takes_token(const Node& node) {
  if (node.op().in_dispatcher()) return false;
  const std::vector<Graph::Input>& inputs = node.args().at(0).graph()->inputs();
  return !inputs.empty() && inputs[0].slot == token_slot;
}

bool has_tokens(const Graph& graph) {
  if (graph.find_input(token_slot) >= 0) return true;
  for (const Node& node : graph.nodes()) {
    if (takes_token(node)) return true;
  }
  return false;
}

/// Copies a graph and threads a token through its effects.
class TokenLifter {
 public:
  explicit TokenLifter(const Graph& graph)
      : graph_(graph),
        is_first_(names_own_positions(graph)),
        sizes_(graph.find_input({Slot::Kind::Sizes, 0})),
        map_(graph.value_capacity(), nullptr) {}

  Graph run() {
    if (is_first_) token_ = lifted_.add_input(token_slot, token_meta());
    for (const Graph::Input& input : graph_.inputs())
      map_[input.value->id()] =
          lifted_.add_input(moved(input.slot), input.value->meta, input.captured);
    if (!is_first_) token_ = lifted_.add_input(token_slot, token_meta());
    for (const Node& node : graph_.nodes()) {
      if (needs_token(node)) {
        add_call(node);
      } else {
        copy_node(lifted_, node, map_);
      }
    }
    add_outputs();
    lifted_.set_example_sizes(graph_.example_sizes());
    return std::move(lifted_);
  }

 private:
  /// The slot, with the position that it names.
  Slot moved(Slot slot) const {
    const bool names_position = facts(slot.kind).index_names != SlotFacts::Names::nothing;
    return {slot.kind, slot.index + (is_first_ && names_position ? 1 : 0)};
  }

  void add_outputs() {
    if (is_first_) lifted_.add_output(token_, token_slot);
    for (const Graph::Output& output : graph_.outputs()) {
      Value* value = output.value == nullptr ? nullptr : map_[output.value->id()];
      lifted_.add_output(value, moved(output.slot), output.requires_grad);
    }
    if (!is_first_) lifted_.add_output(token_, token_slot);
  }

  void add_call(const Node& node) {
    auto body = std::make_shared<Graph>();
    ValueMap inside(graph_.value_capacity(), nullptr);
    std::vector<Argument> args = {std::shared_ptr<const Graph>(body), token_};
    Value* const token = body->add_input(token_slot, token_meta());
    const auto pass = [&](const Value* value, Slot slot) {
      if (inside[value->id()] != nullptr) return;
      inside[value->id()] = body->add_input(slot, value->meta);
      args.emplace_back(map_[value->id()]);
    };
    // Constants may be made of sizes.
    if (sizes_ >= 0) {
      const Graph::Input& sizes = graph_.inputs()[static_cast<size_t>(sizes_)];
      pass(sizes.value, sizes.slot);
    }
    int32_t next = 0;
    node.for_each_operand([&](const Value* value) { pass(value, {Slot::Kind::Primal, next++}); });
    copy_node(*body, node, inside);
    Node* const call = lifted_.add_node(Operator::call_graph(), std::move(args));
    call->belong_to(node);
    call->set_tags(node.tags());
    body->add_output(token, token_slot);
    token_ = lifted_.add_return(call, token_meta());
    int32_t result = 0;
    for (const Value* value : node.results()) {
      if (value == nullptr) continue;
      body->add_output(inside[value->id()], {Slot::Kind::Output, result++});
      map_[value->id()] = lifted_.add_return(call, value->meta);
    }
  }

  const Graph& graph_;
  const bool is_first_;  ///< the token stands before the other inputs and outputs
  const int64_t sizes_;
  ValueMap map_;
  Graph lifted_;
  Value* token_ = nullptr;  ///< that the next effect takes
};

at::Tensor make_token() {
  return at::detail::empty_cpu({0}, at::kFloat);
}
void sink_token(const at::Tensor&) {}

}  // namespace

size_t lift_effect_tokens(Graph& graph) {
  if (has_tokens(graph)) return 0;
  refuse_size_reads(graph, "effects",
                    "No sub-graph, as tokens need one, can read it. Leave tokens out.");
  size_t count = 0;
  for (const Node& node : graph.nodes()) count += needs_token(node) ? 1 : 0;
  if (count != 0) graph = TokenLifter(graph).run();
  return count;
}

size_t unlift_effect_tokens(Graph& graph) {
  const int64_t input = graph.find_input(token_slot), output = graph.find_output(token_slot);
  if ((input < 0) != (output < 0)) {
    throw UserError("effects", std::string("Token: the graph ") +
                                   (input < 0 ? "returns a token that it was not given."
                                              : "takes a token and returns none.") +
                                   " Use a graph that lift_effect_tokens() made.");
  }
  if (input < 0) return 0;
  Node* const made = graph.add_node(make_token_operator(), {}, graph.first());
  made->set(Tag::Effect);
  graph.replace_uses(graph.inputs()[static_cast<size_t>(input)].value,
                     graph.add_return(made, token_meta()));
  Node* const sunk =
      graph.add_node(sink_token_operator(), {graph.outputs()[static_cast<size_t>(output)].value});
  sunk->set(Tag::Effect);
  if (!names_own_positions(graph)) made->phase = sunk->phase = Phase::Backward;
  graph.erase_output(static_cast<size_t>(output));
  graph.erase_input(static_cast<size_t>(input));
  return 1;
}

size_t remove_effect_tokens(Graph& graph) {
  unlift_effect_tokens(graph);
  size_t count = 0;
  for (Node *node = graph.first(), *next = nullptr; node != nullptr; node = next) {
    next = node->next();
    if (!takes_token(*node)) continue;
    std::vector<Value*> operands;
    for (size_t i = 1; i < node->args().size(); ++i) operands.push_back(node->args()[i].value());
    const auto results = inline_graph(graph, *node->args()[0].graph(), operands, node);
    for (size_t i = 0; i < results.size(); ++i) graph.replace_uses(node->result(i), results[i]);
    graph.erase(node);
    ++count;
  }
  for (Node *node = graph.last(), *before = nullptr; node != nullptr; node = before) {
    before = node->prev();
    const bool is_of_tokens =
        &node->op() == &make_token_operator() || &node->op() == &sink_token_operator();
    if (is_of_tokens) graph.erase(node);
  }
  return count;
}

TORCH_LIBRARY_FRAGMENT(ahead, library) {
  library.def("make_token() -> Tensor");
  library.def("sink_token(Tensor token) -> ()");
}

TORCH_LIBRARY_IMPL(ahead, CompositeExplicitAutograd, library) {
  library.impl("make_token", make_token);
  library.impl("sink_token", sink_token);
}

}  // namespace ahead
