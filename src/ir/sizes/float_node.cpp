#include "ir/sizes/float_node.h"

#include "ir/sizes/decision_node.h"

namespace ahead {
namespace {

using c10::SymNode;

const FloatExpression& expression_of(const SymNode& node) {
  const auto* number = dynamic_cast<const FloatNode*>(node.get());
  TORCH_INTERNAL_ASSERT(number != nullptr, "numbers of two programs meet");
  return number->expression();
}

}  // namespace

c10::SymFloat FloatNode::make(const FloatExpression& expression,
                              const std::shared_ptr<SizeGuards>& guards) {
  if (const auto constant = expression.constant()) return *constant;
  return c10::SymFloat(SymNode(c10::make_intrusive<FloatNode>(expression, guards)));
}

const FloatNode* FloatNode::in(const c10::SymFloat& number) {
  return dynamic_cast<const FloatNode*>(number.toSymNodeImplUnowned());
}

SizeGuards& FloatNode::guards() const {
  TORCH_CHECK(guards_ != nullptr, expression_.str(), ": this number is known when the graph runs");
  return *guards_;
}

double FloatNode::peek() const {
  return guards().peek(expression_);
}

SymNode FloatNode::make_node(FloatExpression expression) const {
  return c10::make_intrusive<FloatNode>(std::move(expression), guards_);
}

SymNode FloatNode::decide(SizeGuards::Relation relation, const FloatExpression& left,
                          const FloatExpression& right) const {
  return DecisionNode::make(guards().decide(relation, left, right));
}

SymNode FloatNode::clone() {
  return make_node(expression_);
}

SymNode FloatNode::wrap_float(double number) {
  return make_node(number);
}

SymNode FloatNode::add(const SymNode& other) {
  return make_node(expression_ + expression_of(other));
}

SymNode FloatNode::sub(const SymNode& other) {
  return make_node(expression_ - expression_of(other));
}

SymNode FloatNode::mul(const SymNode& other) {
  return make_node(expression_ * expression_of(other));
}

SymNode FloatNode::truediv(const SymNode& other) {
  return make_node(expression_ / expression_of(other));
}

SymNode FloatNode::neg() {
  return make_node(FloatExpression(-1) * expression_);
}

SymNode FloatNode::sym_float() {
  return make_node(expression_);
}

SymNode FloatNode::eq(const SymNode& other) {
  return decide(SizeGuards::Relation::Equal, expression_, expression_of(other));
}

SymNode FloatNode::ne(const SymNode& other) {
  return eq(other)->sym_not();
}

SymNode FloatNode::lt(const SymNode& other) {
  return decide(SizeGuards::Relation::Less, expression_, expression_of(other));
}

SymNode FloatNode::gt(const SymNode& other) {
  return decide(SizeGuards::Relation::Less, expression_of(other), expression_);
}

// Not the opposite of greater: neither is true of NaN.
SymNode FloatNode::le(const SymNode& other) {
  return lt(other)->sym_or(eq(other));
}

SymNode FloatNode::ge(const SymNode& other) {
  return gt(other)->sym_or(eq(other));
}

double FloatNode::guard_float(const char* file, int64_t line) {
  if (const auto constant = expression_.constant()) return *constant;
  const std::string where(file);
  return guards().pin(expression_, "LibTorch asks for it as a number (" +
                                       where.substr(where.find_last_of('/') + 1) + ":" +
                                       std::to_string(line) + ")");
}

double peek(const c10::SymFloat& number) {
  if (!number.is_symbolic()) return number.expect_float();
  const FloatNode* node = FloatNode::in(number);
  TORCH_CHECK(node != nullptr, "a symbolic number of somebody else");
  return node->peek();
}

}  // namespace ahead
