#pragma once

#include <ATen/core/ivalue.h>
#include <c10/core/SymInt.h>
#include <c10/core/SymNodeImpl.h>

#include <memory>
#include <string>

#include "ir/sizes/size_guards.h"

namespace ahead {

/// A SizeExpression where LibTorch expects an integer: its formulas compute with it, and what they
/// decide by it is noted.
class SizeNode final : public c10::SymNodeImpl {
 public:
  SizeNode(SizeExpression expression, std::shared_ptr<SizeGuards> guards)
      : expression_(std::move(expression)), guards_(std::move(guards)) {}

  /// The expression as LibTorch's integer; a plain one if it is a constant.
  static c10::SymInt make(const SizeExpression& expression,
                          const std::shared_ptr<SizeGuards>& guards);
  /// The node behind an integer; null if there is none of this class.
  static const SizeNode* in(const c10::SymInt& size);

  const SizeExpression& expression() const { return expression_; }
  /// Its value in the run that is being written down.
  int64_t peek() const;

  bool is_int() override { return true; }
  bool is_bool() override { return false; }
  bool is_float() override { return false; }
  bool has_hint() override { return guards_ != nullptr; }
  std::string str() override { return expression_.str(); }
  c10::SymNode clone() override;
  c10::SymNode wrap_int(int64_t number) override;
  c10::SymNode add(const c10::SymNode& other) override;
  c10::SymNode sub(const c10::SymNode& other) override;
  c10::SymNode mul(const c10::SymNode& other) override;
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
  c10::SymNode make_node(SizeExpression expression) const;
  bool decide(SizeGuards::Relation relation, const SizeExpression& left,
              const SizeExpression& right) const;

  SizeExpression expression_;
  std::shared_ptr<SizeGuards> guards_;
};

/// The value of an integer in the run that is being written down, on which nothing depends then.
int64_t peek(const c10::SymInt& size);

/// Whether a constant of a graph is made of sizes, itself or in a list: an integer, or a
/// floating-point number (ir/float_node.h).
bool has_sizes(const c10::IValue& constant);
/// The constant for these sizes. Throws UserError if there are too few of them.
c10::IValue with_sizes(const c10::IValue& constant, c10::ArrayRef<int64_t> sizes);
/// The same for the sizes of the run that is being written down.
c10::IValue with_peeked_sizes(const c10::IValue& constant);

}  // namespace ahead
