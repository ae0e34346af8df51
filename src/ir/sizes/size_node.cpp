#include "ir/sizes/size_node.h"

#include <c10/core/Contiguity.h>
#include <c10/core/MemoryFormat.h>

#include <algorithm>

#include "ahead/errors.h"
#include "ir/sizes/decision_node.h"
#include "ir/sizes/float_node.h"

namespace ahead {
namespace {

using c10::SymInt;
using c10::SymNode;
using Nodes = c10::ArrayRef<SymNode>;

const SizeNode& as_size(const SymNode& node) {
  const auto* size = dynamic_cast<const SizeNode*>(node.get());
  TORCH_INTERNAL_ASSERT(size != nullptr, "sizes of two programs meet");
  return *size;
}

std::vector<SymInt> integers(Nodes nodes) {
  std::vector<SymInt> integers;
  for (const SymNode& node : nodes) {
    const SizeExpression& expression = as_size(node).expression();
    const auto constant = expression.constant();
    integers.push_back(constant ? SymInt(*constant) : SymInt(node));
  }
  return integers;
}

using LayoutTest = bool (*)(c10::ArrayRef<SymInt> sizes, c10::ArrayRef<SymInt> strides);

SymNode decide_layout(LayoutTest test, Nodes sizes, Nodes strides) {
  return DecisionNode::make(test(integers(sizes), integers(strides)));
}

SymInt product(const std::vector<SymInt>& sizes) {
  SymInt product = 1;
  for (const SymInt& size : sizes) product = product * size;
  return product;
}

}  // namespace

SymInt SizeNode::make(const SizeExpression& expression, const std::shared_ptr<SizeGuards>& guards) {
  if (const auto constant = expression.constant()) return *constant;
  return SymInt(SymNode(c10::make_intrusive<SizeNode>(expression, guards)));
}

const SizeNode* SizeNode::in(const SymInt& size) {
  if (!size.is_heap_allocated()) return nullptr;
  return dynamic_cast<const SizeNode*>(size.toSymNodeImplUnowned());
}

int64_t SizeNode::peek() const {
  TORCH_CHECK(guards_ != nullptr, expression_.str(), ": this size is known when the graph runs");
  return guards_->peek(expression_);
}

SymNode SizeNode::make_node(SizeExpression expression) const {
  return c10::make_intrusive<SizeNode>(std::move(expression), guards_);
}

bool SizeNode::decide(SizeGuards::Relation relation, const SizeExpression& left,
                      const SizeExpression& right) const {
  TORCH_CHECK(guards_ != nullptr, expression_.str(), ": this size is known when the graph runs");
  return guards_->decide(relation, left, right);
}

SymNode SizeNode::clone() {
  return make_node(expression_);
}

SymNode SizeNode::wrap_int(int64_t number) {
  return make_node(number);
}

SymNode SizeNode::add(const SymNode& other) {
  return make_node(expression_ + as_size(other).expression());
}

SymNode SizeNode::sub(const SymNode& other) {
  return make_node(expression_ - as_size(other).expression());
}

SymNode SizeNode::mul(const SymNode& other) {
  return make_node(expression_ * as_size(other).expression());
}

SymNode SizeNode::floordiv(const SymNode& other) {
  return make_node(expression_.floor_divided_by(as_size(other).expression()));
}

SymNode SizeNode::mod(const SymNode& other) {
  return make_node(expression_.modulo(as_size(other).expression()));
}

SymNode SizeNode::neg() {
  return make_node(SizeExpression(0) - expression_);
}

SymNode SizeNode::sym_min(const SymNode& other) {
  return make_node(expression_.min(as_size(other).expression()));
}

SymNode SizeNode::sym_max(const SymNode& other) {
  return make_node(expression_.max(as_size(other).expression()));
}

SymNode SizeNode::sym_float() {
  return c10::make_intrusive<FloatNode>(FloatExpression::of(expression_), guards_);
}

SymNode SizeNode::eq(const SymNode& other) {
  return DecisionNode::make(
      decide(SizeGuards::Relation::Equal, expression_, as_size(other).expression()));
}

SymNode SizeNode::ne(const SymNode& other) {
  return eq(other)->sym_not();
}

SymNode SizeNode::lt(const SymNode& other) {
  return DecisionNode::make(
      decide(SizeGuards::Relation::Less, expression_, as_size(other).expression()));
}

SymNode SizeNode::gt(const SymNode& other) {
  return DecisionNode::make(
      decide(SizeGuards::Relation::Less, as_size(other).expression(), expression_));
}

SymNode SizeNode::le(const SymNode& other) {
  return gt(other)->sym_not();
}

SymNode SizeNode::ge(const SymNode& other) {
  return lt(other)->sym_not();
}

SymNode SizeNode::is_contiguous(Nodes sizes, Nodes strides) {
  const auto a = integers(sizes), b = integers(strides);
  return DecisionNode::make(c10::_compute_contiguous<SymInt>(a, b, product(a)));
}

SymNode SizeNode::is_channels_last_contiguous_2d(Nodes sizes, Nodes strides) {
  return decide_layout(c10::_compute_channels_last_contiguous_2d<SymInt>, sizes, strides);
}

SymNode SizeNode::is_channels_last_contiguous_3d(Nodes sizes, Nodes strides) {
  return decide_layout(c10::_compute_channels_last_contiguous_3d<SymInt>, sizes, strides);
}

SymNode SizeNode::is_channels_last_strides_2d(Nodes sizes, Nodes strides) {
  return decide_layout(c10::is_channels_last_strides_2d<SymInt>, sizes, strides);
}

SymNode SizeNode::is_channels_last_strides_3d(Nodes sizes, Nodes strides) {
  return decide_layout(c10::is_channels_last_strides_3d<SymInt>, sizes, strides);
}

SymNode SizeNode::is_non_overlapping_and_dense(Nodes sizes, Nodes strides) {
  return decide_layout(c10::_compute_non_overlapping_and_dense<SymInt>, sizes, strides);
}

int64_t SizeNode::guard_int(const char* file, int64_t line) {
  TORCH_CHECK(guards_ != nullptr, expression_.str(), ": this size is known when the graph runs");
  if (const auto constant = expression_.constant()) return *constant;
  const std::string where(file);
  return guards_->pin(expression_, "LibTorch asks for it as a number (" +
                                       where.substr(where.find_last_of('/') + 1) + ":" +
                                       std::to_string(line) + ")");
}

double SizeNode::guard_float(const char* file, int64_t line) {
  return static_cast<double>(guard_int(file, line));
}

int64_t peek(const SymInt& size) {
  if (const auto known = size.maybe_as_int()) return *known;
  const SizeNode* node = SizeNode::in(size);
  TORCH_CHECK(node != nullptr, "a symbolic size of somebody else");
  return node->peek();
}

bool has_sizes(const c10::IValue& constant) {
  return constant.isSymInt() || constant.isSymIntList() || constant.isSymFloat();
}

namespace {

/// The constant with the numbers that the functions give for what is made of sizes.
template <class ValueOf, class FloatOf>
c10::IValue replace_sizes(const c10::IValue& constant, ValueOf&& value_of, FloatOf&& float_of) {
  if (constant.isSymInt()) return value_of(constant.toSymInt());
  if (constant.isSymFloat()) return float_of(constant.toSymFloat());
  if (!has_sizes(constant)) return constant;
  c10::List<int64_t> list;
  for (const c10::IValue& item : constant.toListRef())
    list.push_back(item.isSymInt() ? value_of(item.toSymInt()) : item.toInt());
  return list;
}

/// The value of a node for these sizes.
template <class Node>
auto evaluate(const Node* node, c10::ArrayRef<int64_t> sizes) {
  using Value = decltype(node->expression().evaluate(sizes));
  const Value value = node == nullptr ? Value() : node->expression().evaluate(sizes);
  if (value) return *value;
  throw UserError("sizes", (node == nullptr ? "size" : node->expression().str()) +
                               ": it has no value for the " + std::to_string(sizes.size()) +
                               " sizes given. Pass as many as the graph names, such that nothing "
                               "is divided by zero.");
}

}  // namespace

c10::IValue with_sizes(const c10::IValue& constant, c10::ArrayRef<int64_t> sizes) {
  return replace_sizes(
      constant, [&](const SymInt& size) { return evaluate(SizeNode::in(size), sizes); },
      [&](const c10::SymFloat& number) { return evaluate(FloatNode::in(number), sizes); });
}

c10::IValue with_peeked_sizes(const c10::IValue& constant) {
  return replace_sizes(
      constant, [](const SymInt& size) { return peek(size); },
      [](const c10::SymFloat& number) { return peek(number); });
}

}  // namespace ahead
