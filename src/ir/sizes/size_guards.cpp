#include "ir/sizes/size_guards.h"

#include <c10/util/Exception.h>

#include <algorithm>

namespace ahead {

uint32_t SizeGuards::add(int64_t value) {
  values_.push_back(value);
  return static_cast<uint32_t>(values_.size() - 1);
}

bool SizeGuards::decide(Relation relation, const SizeExpression& left,
                        const SizeExpression& right) {
  const SizeExpression difference = left - right;
  const int64_t value = peek(difference);
  const bool holds = relation == Relation::Equal ? value == 0 : value < 0;
  if (difference.constant()) return holds;
  const std::string text = difference.str() + (relation == Relation::Equal ? "==" : "<");
  const bool is_known = known_.count(text) != 0;
  if (listener_ != nullptr) listener_->note_decision(relation, left, right, holds, is_known);
  if (is_known) return holds;
  known_.insert(text);
  guards_.push_back({relation, difference, holds});
  return holds;
}

bool SizeGuards::compare(Relation relation, double left, double right) {
  return relation == Relation::Equal ? left == right : left < right;
}

bool SizeGuards::decide(Relation relation, const FloatExpression& left,
                        const FloatExpression& right) {
  const bool holds = compare(relation, peek(left), peek(right));
  if (left.constant() && right.constant()) return holds;
  if (listener_ != nullptr) pin(left - right, "a decision is made by it as a real number");
  const char* name = relation == Relation::Equal ? "==" : "<";
  if (known_.insert(left.str() + name + right.str()).second)
    float_guards_.push_back({relation, left, right, holds});
  return holds;
}

int64_t SizeGuards::pin(const SizeExpression& expression, const std::string& reason) {
  const int64_t value = peek(expression);
  if (listener_ != nullptr) listener_->note_pin(expression, reason);
  decide(Relation::Equal, expression, value);
  expression.add_symbols(pinned_symbols_);
  if (pinned_.empty()) pinned_ = reason;
  return value;
}

double SizeGuards::pin(const FloatExpression& expression, const std::string& reason) {
  std::vector<uint32_t> symbols;
  expression.add_symbols(symbols);
  // Numbers that are equal need not be the same: 0 and -0.
  for (uint32_t symbol : symbols) pin(SizeExpression::symbol(symbol), reason);
  return peek(expression);
}

int64_t SizeGuards::peek(const SizeExpression& expression) const {
  const std::optional<int64_t> value = expression.evaluate(values_);
  TORCH_CHECK(value, expression.str(), ": this size has no value");
  return *value;
}

double SizeGuards::peek(const FloatExpression& expression) const {
  const std::optional<double> value = expression.evaluate(values_);
  TORCH_CHECK(value, expression.str(), ": this number has no value");
  return *value;
}

bool SizeGuards::hold(c10::ArrayRef<int64_t> sizes) const {
  const auto holds = [&](const Guard& guard) {
    const std::optional<int64_t> value = guard.difference.evaluate(sizes);
    if (!value) return false;
    return (guard.relation == Relation::Equal ? *value == 0 : *value < 0) == guard.holds;
  };
  const auto float_holds = [&](const FloatGuard& guard) {
    const auto left = guard.left.evaluate(sizes), right = guard.right.evaluate(sizes);
    return left && right && compare(guard.relation, *left, *right) == guard.holds;
  };
  return std::all_of(guards_.begin(), guards_.end(), holds) &&
         std::all_of(float_guards_.begin(), float_guards_.end(), float_holds);
}

bool SizeGuards::is_of_use(std::vector<int64_t> before) const {
  if (pinned_.empty()) return true;
  std::vector<bool> is_pinned(values_.size());
  for (uint32_t symbol : pinned_symbols_) {
    is_pinned[symbol] = true;
    before[symbol] = values_[symbol];
  }
  return std::find(is_pinned.begin(), is_pinned.end(), false) != is_pinned.end() && hold(before);
}

}  // namespace ahead
