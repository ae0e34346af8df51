#include "ir/sizes/expression_node.h"

#include <c10/core/Contiguity.h>
#include <c10/core/MemoryFormat.h>

#include "ahead/errors.h"
#include "ir/sizes/decision_node.h"
#include "ir/sizes/late_decision.h"
#include "ir/sizes/layout.h"
#include "ir/tensor_meta.h"

namespace ahead {
namespace {

using c10::SymInt;
using c10::SymNode;
using Nodes = c10::ArrayRef<SymNode>;

template <class Expression>
const Expression& expression_of(const SymNode& node) {
  const auto* number = dynamic_cast<const ExpressionNode<Expression>*>(node.get());
  TORCH_INTERNAL_ASSERT(number != nullptr, "numbers of two programs meet");
  return number->expression();
}

std::vector<SymInt> integers(Nodes nodes) {
  std::vector<SymInt> integers;
  for (const SymNode& node : nodes) {
    const auto constant = expression_of<SizeExpression>(node).constant();
    integers.push_back(constant ? SymInt(*constant) : SymInt(node));
  }
  return integers;
}

using LayoutTest = bool (*)(c10::ArrayRef<SymInt> sizes, c10::ArrayRef<SymInt> strides);

SymNode decide_layout(LayoutTest test, Nodes sizes, Nodes strides) {
  return DecisionNode::make(test(integers(sizes), integers(strides)));
}

/// Whether it lies row by row for all sizes, so that nothing is decided by them.
bool is_always_contiguous(c10::ArrayRef<SymInt> sizes, c10::ArrayRef<SymInt> strides) {
  return to_dims(strides) == contiguous_strides(to_dims(sizes));
}

bool is_contiguous_row_by_row(c10::ArrayRef<SymInt> sizes, c10::ArrayRef<SymInt> strides) {
  if (is_always_contiguous(sizes, strides)) return true;
  SymInt elements = 1;
  for (const SymInt& size : sizes) elements = elements * size;
  return c10::_compute_contiguous<SymInt>(sizes, strides, elements);
}

bool is_dense(c10::ArrayRef<SymInt> sizes, c10::ArrayRef<SymInt> strides) {
  return is_always_contiguous(sizes, strides) ||
         c10::_compute_non_overlapping_and_dense<SymInt>(sizes, strides);
}

/// A quotient or a remainder as plain integers in C++ have it, which round to zero. Which numbers
/// are negative is noted.
SizeExpression divide_as_integers(SizeGuards& guards, const SizeExpression& left,
                                  const SizeExpression& right, bool want_remainder) {
  const SizeExpression exact = left.floor_divided_by(right);
  if (exact * right == left) return want_remainder ? SizeExpression(0) : exact;
  const auto is_negative = [&](const SizeExpression& number) {
    return guards.decide(SizeGuards::Relation::Less, number, 0);
  };
  const auto signed_as = [](const SizeExpression& number, bool negative) {
    return negative ? SizeExpression(-1) * number : number;
  };
  const bool left_negative = is_negative(left), right_negative = is_negative(right);
  const SizeExpression a = signed_as(left, left_negative), b = signed_as(right, right_negative);
  if (want_remainder) return signed_as(a.modulo(b), left_negative);
  return signed_as(a.floor_divided_by(b), left_negative != right_negative);
}

}  // namespace

template <class Expression>
auto ExpressionNode<Expression>::make(const Expression& expression,
                                      const std::shared_ptr<SizeGuards>& guards) -> Number {
  if (const auto constant = expression.constant()) return *constant;
  return Number(SymNode(c10::make_intrusive<ExpressionNode>(expression, guards)));
}

template <class Expression>
const ExpressionNode<Expression>* ExpressionNode<Expression>::in(const Number& number) {
  if constexpr (kIsSize) {
    if (!number.is_heap_allocated()) return nullptr;
  }
  return dynamic_cast<const ExpressionNode*>(number.toSymNodeImplUnowned());
}

template <class Expression>
SizeGuards& ExpressionNode<Expression>::guards() const {
  TORCH_CHECK(guards_ != nullptr, expression_.str(), ": this ", kIsSize ? "size" : "number",
              " is known when the graph runs");
  return *guards_;
}

template <class Expression>
const Expression& ExpressionNode<Expression>::operand(const SymNode& other) const {
  const Expression& expression = expression_of<Expression>(other);
  const auto& others = static_cast<const ExpressionNode&>(*other).guards_;
  const bool is_any_read = (guards_ != nullptr && guards_->has_listener()) ||
                           (others != nullptr && others->has_listener());
  if (is_any_read && guards_ != others) {
    throw UserError("trace", expression_.str() + " and " + expression.str() +
                                 ": sizes of two traces meet. Do not keep sizes beyond the traced "
                                 "function.");
  }
  return expression;
}

template <class Expression>
auto ExpressionNode<Expression>::peek() const -> Value {
  return guards().peek(expression_);
}

template <class Expression>
auto ExpressionNode<Expression>::pin(const char* file, int64_t line) const -> Value {
  if (const auto constant = expression_.constant()) return *constant;
  const std::string where(file);
  return guards().pin(expression_, "LibTorch asks for it as a number (" +
                                       where.substr(where.find_last_of('/') + 1) + ":" +
                                       std::to_string(line) + ")");
}

template <class Expression>
SymNode ExpressionNode<Expression>::make_node(Expression expression) const {
  return c10::make_intrusive<ExpressionNode>(std::move(expression), guards_);
}

template <class Expression>
SymNode ExpressionNode<Expression>::decide(Relation relation, const Expression& left,
                                           const Expression& right) const {
  if constexpr (kIsSize) {
    if (guards().has_listener())
      return c10::make_intrusive<LateDecision>(relation, left, right, false, guards_);
  }
  return DecisionNode::make(guards().decide(relation, left, right));
}

template <class Expression>
SymNode ExpressionNode<Expression>::clone() {
  return make_node(expression_);
}

template <class Expression>
SymNode ExpressionNode<Expression>::wrap_int(int64_t number) {
  if constexpr (kIsSize) return make_node(number);
  return SymNodeImpl::wrap_int(number);
}

template <class Expression>
SymNode ExpressionNode<Expression>::wrap_float(double number) {
  if constexpr (!kIsSize) return make_node(number);
  return SymNodeImpl::wrap_float(number);
}

template <class Expression>
SymNode ExpressionNode<Expression>::add(const SymNode& other) {
  return make_node(expression_ + operand(other));
}

template <class Expression>
SymNode ExpressionNode<Expression>::sub(const SymNode& other) {
  return make_node(expression_ - operand(other));
}

template <class Expression>
SymNode ExpressionNode<Expression>::mul(const SymNode& other) {
  return make_node(expression_ * operand(other));
}

template <class Expression>
SymNode ExpressionNode<Expression>::truediv(const SymNode& other) {
  if constexpr (!kIsSize) return make_node(expression_ / operand(other));
  return SymNodeImpl::truediv(other);
}

template <class Expression>
SymNode ExpressionNode<Expression>::floordiv(const SymNode& other) {
  if constexpr (kIsSize) {
    const SizeExpression& divisor = operand(other);
    if (guards_ != nullptr && guards_->has_listener())
      return make_node(divide_as_integers(*guards_, expression_, divisor, false));
    return make_node(expression_.floor_divided_by(divisor));
  }
  return SymNodeImpl::floordiv(other);
}

template <class Expression>
SymNode ExpressionNode<Expression>::mod(const SymNode& other) {
  if constexpr (kIsSize) {
    const SizeExpression& divisor = operand(other);
    if (guards_ != nullptr && guards_->has_listener())
      return make_node(divide_as_integers(*guards_, expression_, divisor, true));
    return make_node(expression_.modulo(divisor));
  }
  return SymNodeImpl::mod(other);
}

// Of a floating-point number the product, since 0 - 0 is not -0.
template <class Expression>
SymNode ExpressionNode<Expression>::neg() {
  return make_node(Expression(-1) * expression_);
}

template <class Expression>
SymNode ExpressionNode<Expression>::sym_min(const SymNode& other) {
  if constexpr (kIsSize) return make_node(expression_.min(operand(other)));
  return SymNodeImpl::sym_min(other);
}

template <class Expression>
SymNode ExpressionNode<Expression>::sym_max(const SymNode& other) {
  if constexpr (kIsSize) return make_node(expression_.max(operand(other)));
  return SymNodeImpl::sym_max(other);
}

template <class Expression>
SymNode ExpressionNode<Expression>::sym_float() {
  if constexpr (kIsSize)
    return c10::make_intrusive<FloatNode>(FloatExpression::of(expression_), guards_);
  return clone();
}

template <class Expression>
SymNode ExpressionNode<Expression>::eq(const SymNode& other) {
  return decide(Relation::Equal, expression_, operand(other));
}

template <class Expression>
SymNode ExpressionNode<Expression>::ne(const SymNode& other) {
  return eq(other)->sym_not();
}

template <class Expression>
SymNode ExpressionNode<Expression>::lt(const SymNode& other) {
  return decide(Relation::Less, expression_, operand(other));
}

template <class Expression>
SymNode ExpressionNode<Expression>::gt(const SymNode& other) {
  return decide(Relation::Less, operand(other), expression_);
}

// Of floating-point numbers not the opposite of greater: neither is true of NaN.
template <class Expression>
SymNode ExpressionNode<Expression>::le(const SymNode& other) {
  return kIsSize ? gt(other)->sym_not() : lt(other)->sym_or(eq(other));
}

template <class Expression>
SymNode ExpressionNode<Expression>::ge(const SymNode& other) {
  return kIsSize ? lt(other)->sym_not() : gt(other)->sym_or(eq(other));
}

template <class Expression>
SymNode ExpressionNode<Expression>::is_contiguous(Nodes sizes, Nodes strides) {
  return decide_layout(is_contiguous_row_by_row, sizes, strides);
}

template <class Expression>
SymNode ExpressionNode<Expression>::is_channels_last_contiguous_2d(Nodes sizes, Nodes strides) {
  return decide_layout(c10::_compute_channels_last_contiguous_2d<SymInt>, sizes, strides);
}

template <class Expression>
SymNode ExpressionNode<Expression>::is_channels_last_contiguous_3d(Nodes sizes, Nodes strides) {
  return decide_layout(c10::_compute_channels_last_contiguous_3d<SymInt>, sizes, strides);
}

template <class Expression>
SymNode ExpressionNode<Expression>::is_channels_last_strides_2d(Nodes sizes, Nodes strides) {
  return decide_layout(c10::is_channels_last_strides_2d<SymInt>, sizes, strides);
}

template <class Expression>
SymNode ExpressionNode<Expression>::is_channels_last_strides_3d(Nodes sizes, Nodes strides) {
  return decide_layout(c10::is_channels_last_strides_3d<SymInt>, sizes, strides);
}

template <class Expression>
SymNode ExpressionNode<Expression>::is_non_overlapping_and_dense(Nodes sizes, Nodes strides) {
  return decide_layout(is_dense, sizes, strides);
}

template <class Expression>
int64_t ExpressionNode<Expression>::guard_int(const char* file, int64_t line) {
  if constexpr (kIsSize) return pin(file, line);
  return SymNodeImpl::guard_int(file, line);
}

template <class Expression>
double ExpressionNode<Expression>::guard_float(const char* file, int64_t line) {
  return static_cast<double>(pin(file, line));
}

template class ExpressionNode<SizeExpression>;
template class ExpressionNode<FloatExpression>;

}  // namespace ahead
