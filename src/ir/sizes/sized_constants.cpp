#include "ir/sizes/sized_constants.h"

#include <algorithm>
#include <string>

#include "ahead/errors.h"
#include "ir/sizes/expression_node.h"
#include "ir/sizes/layout.h"

namespace ahead {
namespace {

/// The constant with the numbers that the function gives for what is made of sizes.
template <class ValueOf>
c10::IValue replace_sizes(const c10::IValue& constant, ValueOf&& value_of) {
  if (constant.isSymInt()) return value_of(constant.toSymInt());
  if (constant.isSymFloat()) return value_of(constant.toSymFloat());
  if (!has_sizes(constant)) return constant;
  c10::List<int64_t> list;
  for (const c10::IValue& item : constant.toListRef())
    list.push_back(item.isSymInt() ? value_of(item.toSymInt()) : item.toInt());
  return list;
}

/// The value of a node for these sizes.
template <class Expression>
auto evaluate(const ExpressionNode<Expression>* node, c10::ArrayRef<int64_t> sizes) {
  using Value = decltype(node->expression().evaluate(sizes));
  const Value value = node == nullptr ? Value() : node->expression().evaluate(sizes);
  if (value) return *value;
  throw UserError("sizes", (node == nullptr ? "size" : node->expression().str()) +
                               ": it has no value for the " + std::to_string(sizes.size()) +
                               " sizes given. Pass as many as the graph names, such that nothing "
                               "is divided by zero.");
}

/// The constant with what the function gives for the expressions that it is made of.
template <class ExpressionOf>
c10::IValue rewrite_sizes(const c10::IValue& constant, const std::shared_ptr<SizeGuards>& guards,
                          ExpressionOf&& expression_of) {
  const auto integer = [&](const c10::SymInt& number) {
    return to_sym_int(Dim::of(expression_of(to_dim(number).expression())), guards);
  };
  if (constant.isSymInt()) return integer(constant.toSymInt());
  if (constant.isSymFloat()) {
    const FloatNode* node = FloatNode::in(constant.toSymFloat());
    TORCH_CHECK(node != nullptr, "a symbolic number of somebody else");
    return FloatNode::make(expression_of(node->expression()), guards);
  }
  if (!has_sizes(constant)) return constant;
  std::vector<c10::SymInt> list;
  for (const c10::IValue& item : constant.toListRef())
    list.push_back(item.isSymInt() ? integer(item.toSymInt()) : c10::SymInt(item.toInt()));
  return to_constant(to_dims(list), guards);
}

}  // namespace

c10::IValue to_constant(const Dims& dims, const std::shared_ptr<SizeGuards>& guards) {
  if (dims.is_fixed()) return c10::IValue(dims.fixed());
  return c10::IValue(to_sym_ints(dims, guards));
}

int64_t peek(const c10::SymInt& size) {
  if (const auto known = size.maybe_as_int()) return *known;
  const SizeNode* node = SizeNode::in(size);
  TORCH_CHECK(node != nullptr, "a symbolic size of somebody else");
  return node->peek();
}

double peek(const c10::SymFloat& number) {
  if (!number.is_symbolic()) return number.expect_float();
  const FloatNode* node = FloatNode::in(number);
  TORCH_CHECK(node != nullptr, "a symbolic number of somebody else");
  return node->peek();
}

bool has_sizes(const c10::IValue& constant) {
  return constant.isSymInt() || constant.isSymIntList() || constant.isSymFloat();
}

bool are_noted_by(const c10::IValue& constant, const SizeGuards* guards) {
  const auto is_noted = [&](const c10::SymInt& number) {
    const SizeNode* node = SizeNode::in(number);
    return node != nullptr && node->noted_by() == guards;
  };
  if (constant.isSymInt()) return is_noted(constant.toSymInt());
  if (constant.isSymFloat()) {
    const FloatNode* node = FloatNode::in(constant.toSymFloat());
    return node != nullptr && node->noted_by() == guards;
  }
  if (!has_sizes(constant)) return true;
  const auto items = constant.toListRef();
  return std::all_of(items.begin(), items.end(), [&](const c10::IValue& item) {
    return !item.isSymInt() || !item.toSymInt().is_heap_allocated() || is_noted(item.toSymInt());
  });
}

c10::IValue with_sizes(const c10::IValue& constant, c10::ArrayRef<int64_t> sizes) {
  return replace_sizes(constant, [&](const auto& number) {
    using Number = std::decay_t<decltype(number)>;
    using Node = std::conditional_t<std::is_same_v<Number, c10::SymInt>, SizeNode, FloatNode>;
    return evaluate(Node::in(number), sizes);
  });
}

c10::IValue with_sizes(const c10::IValue& constant, c10::ArrayRef<SizeExpression> sizes) {
  return rewrite_sizes(constant, nullptr,
                       [&](const auto& expression) { return expression.with_sizes(sizes); });
}

c10::IValue with_guards(const c10::IValue& constant, const std::shared_ptr<SizeGuards>& guards) {
  return rewrite_sizes(constant, guards, [](const auto& expression) { return expression; });
}

c10::IValue with_peeked_sizes(const c10::IValue& constant) {
  return replace_sizes(constant, [](const auto& number) { return peek(number); });
}

}  // namespace ahead
