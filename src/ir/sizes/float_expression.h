#pragma once

#include <c10/util/ArrayRef.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ir/sizes/size_expression.h"

namespace ahead {

/// A floating-point number that is known only when a graph runs: what follows, step by step and
/// rounded as LibTorch's formulas round, from sizes and from numbers that stand among them by their
/// bits.
class FloatExpression {
 public:
  FloatExpression(double constant = 0);
  /// The number whose bits are the size with this number.
  static FloatExpression symbol(uint32_t number);
  /// The number nearest to an integer.
  static FloatExpression of(const SizeExpression& size);
  /// Reads what str() gives; nothing if it is something else.
  static std::optional<FloatExpression> parse(std::string_view text);

  FloatExpression operator+(const FloatExpression& other) const;
  FloatExpression operator-(const FloatExpression& other) const;
  FloatExpression operator*(const FloatExpression& other) const;
  FloatExpression operator/(const FloatExpression& other) const;

  /// Its value, if it is the same for all sizes.
  std::optional<double> constant() const;
  /// Its value for these sizes; nothing if one of them is missing.
  std::optional<double> evaluate(c10::ArrayRef<int64_t> sizes) const;
  /// For example `div(2, sub(float(8*s0), f1))`.
  std::string str() const;
  /// The same number where each size is what stands for it; see SizeExpression. A number that
  /// stands among the sizes by its bits may only be replaced by another such, or by its bits.
  FloatExpression with_sizes(c10::ArrayRef<SizeExpression> sizes) const;
  /// Adds the numbers of the sizes that it is made of.
  void add_symbols(std::vector<uint32_t>& symbols) const;
  bool operator==(const FloatExpression& other) const { return str() == other.str(); }

 private:
  struct Step;
  class Parser;

  explicit FloatExpression(std::shared_ptr<const Step> step) : step_(std::move(step)) {}
  static FloatExpression call(const char* function, const FloatExpression& left,
                              const FloatExpression& right);

  std::shared_ptr<const Step> step_;
};

}  // namespace ahead
