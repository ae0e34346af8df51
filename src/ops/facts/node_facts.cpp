#include "ops/facts/node_facts.h"

#include <algorithm>

#include "ops/facts/facts.h"

namespace ahead::ops {
namespace {

template <class Predicate>
bool any_in_sub_graph(const Node& node, Predicate predicate) {
  if (node.op().in_dispatcher()) return false;
  for (const Node& inner : node.args().at(0).graph()->nodes()) {
    if (predicate(inner)) return true;
  }
  return false;
}

}  // namespace

bool draws_random(const Operator& op, const std::vector<Argument>& args) {
  const OpFacts& known = facts(op);
  if (!known.random || known.random_if < 0) return known.random;
  const Argument& condition = args.at(static_cast<size_t>(known.random_if));
  if (!condition.is_constant()) return true;
  const c10::IValue& value = condition.constant();
  if (value.isBool()) return value.toBool();
  return value.isScalar() ? value.toScalar().toDouble() != 0 : !value.isNone();
}

bool is_random(const Node& node) {
  return node.has(Tag::Random) || draws_random(node.op(), node.args()) ||
         any_in_sub_graph(node, is_random);
}

bool has_effect(const Node& node) {
  return node.has(Tag::Effect) || facts(node.op()).effectful || any_in_sub_graph(node, has_effect);
}

bool is_ordered(const Node& node) {
  return is_random(node) || has_effect(node);
}

bool is_backward_write(const Node& node) {
  static const Operator* const copy = Operator::find("aten.copy_");
  return &node.op() == copy && node.has(Tag::MustBeInBackward) && node.args()[0].is_value() &&
         node.args()[0].value()->producer() == nullptr;
}

bool reads_storage(const Node& node) {
  return node.op().name().starts_with("aten.as_strided");
}

bool reads_by_layout(const Node& node) {
  // The derivative formulas of group norm and weight norm make the gradient contiguous first, which
  // records no node if it was contiguous in the trace.
  static constexpr std::string_view names[] = {"aten.as_strided", "aten.native_group_norm_backward",
                                               "aten._weight_norm_interface_backward"};
  const bool is_known =
      std::find(std::begin(names), std::end(names), node.op().name()) != std::end(names);
  return is_known && node.args()[0].is_value();
}

Value* viewed_by(const Value* value) {
  const Node* node = value->producer();
  if (node == nullptr || !node->op().in_dispatcher()) return nullptr;
  if (facts(node->op()).view == ViewKind::None) return nullptr;
  return !node->args().empty() && node->args()[0].is_value() ? node->args()[0].value() : nullptr;
}

Value* root_of(Value* value) {
  while (Value* viewed = viewed_by(value)) value = viewed;
  return value;
}

bool is_uninitialised(const Node& node) {
  static constexpr std::string_view names[] = {
      "aten.empty.memory_format", "aten.empty_strided",  "aten.empty_like",
      "aten.new_empty",           "aten.empty_permuted", "aten.new_empty_strided"};
  return std::find(std::begin(names), std::end(names), node.op().name()) != std::end(names);
}

bool fills_first_argument(const Operator& op) {
  static constexpr std::string_view names[] = {
      "bernoulli.p", "bernoulli_.float", "uniform",      "uniform_",     "normal_functional",
      "normal_",     "exponential",      "geometric",    "exponential_", "geometric_",
      "cauchy",      "cauchy_",          "log_normal",   "log_normal_",  "random",
      "random_",     "random.from",      "random_.from", "random.to",    "random_.to"};
  std::string_view name = op.name();
  if (!name.starts_with("aten.")) return false;
  name.remove_prefix(5);
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

bool is_only_filled(const Node& node) {
  constexpr std::string_view form = "ahead.random.";
  if (!is_uninitialised(node) || node.result()->output_uses() != 0) return false;
  const auto& users = node.result()->users();
  return std::all_of(users.begin(), users.end(), [&](const Node* user) {
    const std::string_view name = user->op().name();
    if (!name.starts_with(form)) return false;
    const Operator* drawn = Operator::find(name.substr(form.size()));
    return drawn != nullptr && fills_first_argument(*drawn);
  });
}

}  // namespace ahead::ops
