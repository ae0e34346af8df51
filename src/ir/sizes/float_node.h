#pragma once

#include <c10/core/SymFloat.h>
#include <c10/core/SymNodeImpl.h>

#include <memory>
#include <string>

#include "ir/sizes/size_guards.h"

namespace ahead {

/// A FloatExpression where LibTorch expects a floating-point number: its formulas compute with it,
/// and what they decide by it is noted.
class FloatNode final : public c10::SymNodeImpl {
 public:
  FloatNode(FloatExpression expression, std::shared_ptr<SizeGuards> guards)
      : expression_(std::move(expression)), guards_(std::move(guards)) {}

  /// The expression as LibTorch's number; a plain one if it is a constant.
  static c10::SymFloat make(const FloatExpression& expression,
                            const std::shared_ptr<SizeGuards>& guards);
  /// The node behind a number; null if there is none of this class.
  static const FloatNode* in(const c10::SymFloat& number);

  const FloatExpression& expression() const { return expression_; }
  /// Its value in the run that is being written down.
  double peek() const;

  bool is_int() override { return false; }
  bool is_bool() override { return false; }
  bool is_float() override { return true; }
  bool has_hint() override { return guards_ != nullptr; }
  std::string str() override { return expression_.str(); }
  c10::SymNode clone() override;
  c10::SymNode wrap_float(double number) override;
  c10::SymNode add(const c10::SymNode& other) override;
  c10::SymNode sub(const c10::SymNode& other) override;
  c10::SymNode mul(const c10::SymNode& other) override;
  c10::SymNode truediv(const c10::SymNode& other) override;
  c10::SymNode neg() override;
  c10::SymNode sym_float() override;
  c10::SymNode eq(const c10::SymNode& other) override;
  c10::SymNode ne(const c10::SymNode& other) override;
  c10::SymNode lt(const c10::SymNode& other) override;
  c10::SymNode gt(const c10::SymNode& other) override;
  c10::SymNode le(const c10::SymNode& other) override;
  c10::SymNode ge(const c10::SymNode& other) override;
  double guard_float(const char* file, int64_t line) override;

 private:
  SizeGuards& guards() const;
  c10::SymNode make_node(FloatExpression expression) const;
  c10::SymNode decide(SizeGuards::Relation relation, const FloatExpression& left,
                      const FloatExpression& right) const;

  FloatExpression expression_;
  std::shared_ptr<SizeGuards> guards_;
};

/// The value of a number in the run that is being written down, on which nothing depends then.
double peek(const c10::SymFloat& number);

}  // namespace ahead
