#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "ir/sizes/decision_node.h"
#include "ir/sizes/size_guards.h"

namespace ahead {

/// A decision by sizes that a graph reads from tensors, where LibTorch expects a truth value: made,
/// and noted, once it matters. Formulas that can do without it say so.
class LateDecision final : public c10::SymNodeImpl {
 public:
  using Relation = SizeGuards::Relation;

  LateDecision(Relation relation, SizeExpression left, SizeExpression right, bool is_negated,
               std::shared_ptr<SizeGuards> guards)
      : relation_(relation),
        left_(std::move(left)),
        right_(std::move(right)),
        is_negated_(is_negated),
        guards_(std::move(guards)) {}

  bool is_int() override { return false; }
  bool is_bool() override { return true; }
  bool is_float() override { return false; }
  bool has_hint() override { return true; }
  std::string str() override {
    return std::string(is_negated_ ? "not " : "") + left_.str() +
           (relation_ == Relation::Equal ? " == " : " < ") + right_.str();
  }
  c10::SymNode clone() override { return with(is_negated_); }
  c10::SymNode wrap_bool(bool value) override { return DecisionNode::make(value); }
  c10::SymNode sym_and(const c10::SymNode& other) override { return decided()->sym_and(other); }
  c10::SymNode sym_or(const c10::SymNode& other) override { return decided()->sym_or(other); }
  c10::SymNode sym_not() override { return with(!is_negated_); }
  c10::SymNode sym_ite(const c10::SymNode& yes, const c10::SymNode& no) override {
    return decided()->sym_ite(yes, no);
  }
  bool guard_bool(const char*, int64_t) override {
    return guards_->decide(relation_, left_, right_) != is_negated_;
  }
  bool bool_() override { return guard_bool("", 0); }
  bool guard_or_false(const char* file, int64_t line) override {
    return is_dispensable(file) ? known().value_or(false) : guard_bool(file, line);
  }
  bool guard_or_true(const char* file, int64_t line) override {
    return is_dispensable(file) ? known().value_or(true) : guard_bool(file, line);
  }
  std::optional<bool> constant_bool() override { return known(); }

 private:
  /// Whether nothing of a graph depends on what this file of LibTorch's asks: how much memory a
  /// tensor takes; and whether it is contiguous for all sizes, before it asks by sizes.
  static bool is_dispensable(std::string_view file) {
    return file.ends_with("/EmptyTensor.cpp") || file.ends_with("/Contiguity.h");
  }

  c10::SymNode decided() { return DecisionNode::make(guard_bool("", 0)); }
  c10::SymNode with(bool is_negated) const {
    return c10::make_intrusive<LateDecision>(relation_, left_, right_, is_negated, guards_);
  }
  /// The answer that is the same for all sizes.
  std::optional<bool> known() const {
    const std::optional<int64_t> difference = (left_ - right_).constant();
    if (!difference) return std::nullopt;
    return (relation_ == Relation::Equal ? *difference == 0 : *difference < 0) != is_negated_;
  }

  const Relation relation_;
  const SizeExpression left_, right_;
  const bool is_negated_;
  const std::shared_ptr<SizeGuards> guards_;
};

}  // namespace ahead
