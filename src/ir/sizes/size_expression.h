#pragma once

#include <c10/util/ArrayRef.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ahead {

/// An integer that follows from sizes which are known only when a graph runs: a polynomial, in
/// normal form, over those sizes (`s0`, `s1`, …) and over quotients, remainders, minima and maxima
/// of such integers. Two that are equal as polynomials have the same text.
class SizeExpression {
 public:
  SizeExpression(int64_t constant = 0);
  /// The size with this number.
  static SizeExpression symbol(uint32_t number);
  /// Reads what str() gives; nothing if it is something else.
  static std::optional<SizeExpression> parse(std::string_view text);
  /// The same for what a text begins with, which is taken away from it.
  static std::optional<SizeExpression> parse_front(std::string_view& text);

  SizeExpression operator+(const SizeExpression& other) const;
  SizeExpression operator-(const SizeExpression& other) const;
  SizeExpression operator*(const SizeExpression& other) const;
  /// Rounds to minus infinity. The divisor must not be zero when it is evaluated.
  SizeExpression floor_divided_by(const SizeExpression& divisor) const;
  /// What floor_divided_by leaves.
  SizeExpression modulo(const SizeExpression& divisor) const;
  SizeExpression min(const SizeExpression& other) const;
  SizeExpression max(const SizeExpression& other) const;

  /// Its value, if it is the same for all sizes.
  std::optional<int64_t> constant() const;
  /// Its value for these sizes; nothing if it does not fit in 64 bits, divides by zero, or names a
  /// size that is not among them.
  std::optional<int64_t> evaluate(c10::ArrayRef<int64_t> sizes) const;
  /// The same number where each size is what stands for it, which may be an expression over other
  /// sizes: one for each that it is made of.
  SizeExpression with_sizes(c10::ArrayRef<SizeExpression> sizes) const;
  /// Adds the numbers of the sizes that it is made of.
  void add_symbols(std::vector<uint32_t>& symbols) const;
  /// For example `8*s0 + s1*s1 + -1`, or `floordiv(s0, 4)`.
  std::string str() const;
  bool operator==(const SizeExpression& other) const { return str() == other.str(); }

 private:
  struct Atom;
  struct Term {
    int64_t factor;
    std::vector<std::shared_ptr<const Atom>> atoms;  ///< sorted by text

    std::string key() const;
  };
  class Parser;

  static SizeExpression of(std::shared_ptr<const Atom> atom);
  static SizeExpression call(const char* function, const SizeExpression& left,
                             const SizeExpression& right);
  void add(Term term);

  std::vector<Term> terms_;  ///< sorted by key, no factor zero; the constant has the empty key
};

}  // namespace ahead
