#pragma once

#include <c10/core/SymFloat.h>
#include <c10/core/SymInt.h>
#include <c10/core/SymNodeImpl.h>

#include <memory>
#include <string>
#include <type_traits>

#include "ir/sizes/size_guards.h"

namespace ahead {

/// An expression where LibTorch expects a number: its formulas compute with it, and what they
/// decide by it is noted. What only integers or only floating-point numbers can do is refused for
/// the others as LibTorch refuses it.
template <class Expression>
class ExpressionNode final : public c10::SymNodeImpl {
 public:
  static constexpr bool kIsSize = std::is_same_v<Expression, SizeExpression>;
  using Value = std::conditional_t<kIsSize, int64_t, double>;
  using Number = std::conditional_t<kIsSize, c10::SymInt, c10::SymFloat>;

  /// Without guards nothing can be decided, nor asked for: the number is one of a graph.
  ExpressionNode(Expression expression, std::shared_ptr<SizeGuards> guards)
      : expression_(std::move(expression)), guards_(std::move(guards)) {}

  /// The expression as LibTorch's number; a plain one if it is a constant.
  static Number make(const Expression& expression, const std::shared_ptr<SizeGuards>& guards);
  /// The node behind a number; null if there is none of this class.
  static const ExpressionNode* in(const Number& number);

  const Expression& expression() const { return expression_; }
  /// Where decisions by it are noted; null: nowhere.
  const SizeGuards* noted_by() const { return guards_.get(); }
  /// Its value in the run that is being written down.
  Value peek() const;

  bool is_int() override { return kIsSize; }
  bool is_bool() override { return false; }
  bool is_float() override { return !kIsSize; }
  bool has_hint() override { return guards_ != nullptr; }
  std::string str() override { return expression_.str(); }
  c10::SymNode clone() override;
  c10::SymNode wrap_int(int64_t number) override;
  c10::SymNode wrap_float(double number) override;
  c10::SymNode add(const c10::SymNode& other) override;
  c10::SymNode sub(const c10::SymNode& other) override;
  c10::SymNode mul(const c10::SymNode& other) override;
  c10::SymNode truediv(const c10::SymNode& other) override;
  c10::SymNode floordiv(const c10::SymNode& other) override;
  c10::SymNode mod(const c10::SymNode& other) override;
  c10::SymNode neg() override;
  c10::SymNode sym_min(const c10::SymNode& other) override;
  c10::SymNode sym_max(const c10::SymNode& other) override;
  c10::SymNode sym_float() override;
  c10::SymNode eq(const c10::SymNode& other) override;
  c10::SymNode ne(const c10::SymNode& other) override;
  c10::SymNode lt(const c10::SymNode& other) override;
  c10::SymNode gt(const c10::SymNode& other) override;
  c10::SymNode le(const c10::SymNode& other) override;
  c10::SymNode ge(const c10::SymNode& other) override;
  c10::SymNode is_contiguous(c10::ArrayRef<c10::SymNode> sizes,
                             c10::ArrayRef<c10::SymNode> strides) override;
  c10::SymNode is_channels_last_contiguous_2d(c10::ArrayRef<c10::SymNode> sizes,
                                              c10::ArrayRef<c10::SymNode> strides) override;
  c10::SymNode is_channels_last_contiguous_3d(c10::ArrayRef<c10::SymNode> sizes,
                                              c10::ArrayRef<c10::SymNode> strides) override;
  c10::SymNode is_channels_last_strides_2d(c10::ArrayRef<c10::SymNode> sizes,
                                           c10::ArrayRef<c10::SymNode> strides) override;
  c10::SymNode is_channels_last_strides_3d(c10::ArrayRef<c10::SymNode> sizes,
                                           c10::ArrayRef<c10::SymNode> strides) override;
  c10::SymNode is_non_overlapping_and_dense(c10::ArrayRef<c10::SymNode> sizes,
                                            c10::ArrayRef<c10::SymNode> strides) override;
  int64_t guard_int(const char* file, int64_t line) override;
  double guard_float(const char* file, int64_t line) override;
  int64_t int_() override { return guard_int("", 0); }

 private:
  using Relation = SizeGuards::Relation;

  SizeGuards& guards() const;
  /// The expression of another node, which is of the same trace.
  const Expression& operand(const c10::SymNode& other) const;
  c10::SymNode make_node(Expression expression) const;
  c10::SymNode decide(Relation relation, const Expression& left, const Expression& right) const;
  /// Its value, on which the program depends from now on.
  Value pin(const char* file, int64_t line) const;

  Expression expression_;
  std::shared_ptr<SizeGuards> guards_;
};

/// Where LibTorch expects an integer.
using SizeNode = ExpressionNode<SizeExpression>;
/// Where LibTorch expects a floating-point number.
using FloatNode = ExpressionNode<FloatExpression>;

extern template class ExpressionNode<SizeExpression>;
extern template class ExpressionNode<FloatExpression>;

}  // namespace ahead
