#pragma once

#include <c10/util/ArrayRef.h>
#include <c10/util/SmallVector.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>

#include "ahead/export.h"

namespace ahead {

class SizeExpression;

/// A size, a stride or an offset: an integer, or an expression over the sizes `s0`, `s1`, … that a
/// graph is given when it runs. One machine word, cheap to copy; with integers it computes as
/// integers do.
///
/// Expressions are interned, so that two are equal exactly if they are the same integer for all
/// sizes as far as their normal forms tell. Which of two is less is not known before the graph
/// runs.
class AHEAD_API Dim {
 public:
  /// An integer; one below -2^62 is taken for the least there is.
  constexpr Dim(int64_t number = 0) : bits_(number < kLeast ? kLeast : number) {}
  /// The expression, or the integer that it is.
  static Dim of(const SizeExpression& expression);
  /// The size with this number.
  static Dim symbol(uint32_t number);

  constexpr bool is_fixed() const { return bits_ >= kLeast; }
  /// The integer. Throws InternalError if it is known only when the graph runs.
  int64_t fixed() const {
    if (!is_fixed()) throw_not_fixed();
    return bits_;
  }
  /// The value for these sizes. Throws UserError if it has none: there are too few of them, or it
  /// divides by zero.
  int64_t at(c10::ArrayRef<int64_t> sizes) const { return is_fixed() ? bits_ : evaluate(sizes); }
  /// The expression, which may be a constant.
  SizeExpression expression() const;
  /// For example `3`, or `8*s0 + 1`.
  std::string str() const;
  /// Equal for equal ones, in this process.
  uint64_t hash() const { return word(); }

  friend bool operator==(Dim a, Dim b) { return a.bits_ == b.bits_; }
  friend bool operator!=(Dim a, Dim b) { return a.bits_ != b.bits_; }

  Dim operator+(Dim other) const {
    return are_fixed(other) ? wrapped(word() + other.word()) : combine('+', other);
  }
  Dim operator-(Dim other) const {
    return are_fixed(other) ? wrapped(word() - other.word()) : combine('-', other);
  }
  Dim operator*(Dim other) const {
    return are_fixed(other) ? wrapped(word() * other.word()) : combine('*', other);
  }
  /// Rounds to minus infinity.
  Dim operator/(Dim other) const { return combine('/', other); }
  Dim& operator+=(Dim other) { return *this = *this + other; }

 private:
  friend class Dims;

  static constexpr int64_t kLeast = std::numeric_limits<int64_t>::min() / 2;

  // Unsigned: absurd sizes in a text must not overflow.
  uint64_t word() const { return static_cast<uint64_t>(bits_); }
  static Dim wrapped(uint64_t word) { return static_cast<int64_t>(word); }
  bool are_fixed(Dim other) const { return is_fixed() && other.is_fixed(); }
  Dim combine(char operation, Dim other) const;
  int64_t evaluate(c10::ArrayRef<int64_t> sizes) const;
  [[noreturn]] void throw_not_fixed() const;

  int64_t bits_;  ///< the integer, or the address of the expression above the least number
};

/// The sizes or strides of a tensor.
class AHEAD_API Dims : public c10::SmallVector<Dim, 5> {
 public:
  using c10::SmallVector<Dim, 5>::SmallVector;
  Dims() = default;
  Dims(c10::ArrayRef<int64_t> numbers) { append(begin_of(numbers), end_of(numbers)); }
  Dims& operator=(c10::ArrayRef<int64_t> numbers) {
    assign(begin_of(numbers), end_of(numbers));
    return *this;
  }

  bool is_fixed() const {
    for (const Dim& dim : *this)
      if (!dim.is_fixed()) return false;
    return true;
  }
  /// The integers. Throws InternalError if one of them is known only when the graph runs.
  c10::ArrayRef<int64_t> fixed() const {
    for (const Dim& dim : *this) dim.fixed();
    return {&data()->bits_, size()};
  }
  /// The same where LibTorch expects integers.
  operator c10::ArrayRef<int64_t>() const { return fixed(); }
  /// The values for these sizes; see Dim::at().
  c10::SmallVector<int64_t, 5> at(c10::ArrayRef<int64_t> sizes) const {
    c10::SmallVector<int64_t, 5> values;
    for (const Dim& dim : *this) values.push_back(dim.at(sizes));
    return values;
  }

  friend bool operator==(const Dims& a, const Dims& b) {
    return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin());
  }
  friend bool operator!=(const Dims& a, const Dims& b) { return !(a == b); }
  friend bool operator==(const Dims& a, c10::ArrayRef<int64_t> b) {
    return a.size() == b.size() && std::equal(a.begin(), a.end(), begin_of(b));
  }
  friend bool operator!=(const Dims& a, c10::ArrayRef<int64_t> b) { return !(a == b); }
  friend bool operator==(c10::ArrayRef<int64_t> a, const Dims& b) { return b == a; }
  friend bool operator!=(c10::ArrayRef<int64_t> a, const Dims& b) { return !(b == a); }

 private:
  // An integer and a Dim that holds it are the same bits. LibTorch's tensors have no negative sizes
  // or strides.
  static const Dim* begin_of(c10::ArrayRef<int64_t> numbers) {
    return reinterpret_cast<const Dim*>(numbers.data());
  }
  static const Dim* end_of(c10::ArrayRef<int64_t> numbers) {
    return begin_of(numbers) + numbers.size();
  }
};

}  // namespace ahead
