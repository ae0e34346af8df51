#include "ahead/dim.h"

#include <c10/util/Exception.h>

#include <memory>
#include <mutex>
#include <type_traits>
#include <unordered_map>

#include "ahead/errors.h"
#include "ir/sizes/size_expression.h"

namespace ahead {
namespace {

/// All expressions that a Dim ever stood for, by their text. There are few of them: graphs count
/// their sizes from s0, so that the same expressions come back.
const SizeExpression& intern(const SizeExpression& expression) {
  static auto* const mutex = new std::mutex;
  static auto* const known =
      new std::unordered_map<std::string, std::unique_ptr<const SizeExpression>>;
  std::lock_guard<std::mutex> lock(*mutex);
  auto& place = (*known)[expression.str()];
  if (place == nullptr) place = std::make_unique<const SizeExpression>(expression);
  return *place;
}

constexpr int64_t kFirstAddress = std::numeric_limits<int64_t>::min();

const SizeExpression& interned(int64_t bits) {
  const auto address = static_cast<uintptr_t>(bits - kFirstAddress);
  return *reinterpret_cast<const SizeExpression*>(address);
}

}  // namespace

static_assert(sizeof(Dim) == sizeof(int64_t) && std::is_trivially_copyable_v<Dim>);

Dim Dim::of(const SizeExpression& expression) {
  if (const auto constant = expression.constant()) return *constant;
  const auto address = reinterpret_cast<uintptr_t>(&intern(expression));
  TORCH_INTERNAL_ASSERT(address < static_cast<uintptr_t>(kLeast - kFirstAddress));
  Dim dim;
  dim.bits_ = kFirstAddress + static_cast<int64_t>(address);
  return dim;
}

Dim Dim::symbol(uint32_t number) {
  return of(SizeExpression::symbol(number));
}

SizeExpression Dim::expression() const {
  return is_fixed() ? SizeExpression(bits_) : interned(bits_);
}

std::string Dim::str() const {
  return is_fixed() ? std::to_string(bits_) : interned(bits_).str();
}

Dim Dim::combine(char operation, Dim other) const {
  // Most quotients are of integers that are not negative.
  if (operation == '/' && are_fixed(other) && bits_ >= 0 && other.bits_ > 0)
    return bits_ / other.bits_;
  const SizeExpression left = expression(), right = other.expression();
  switch (operation) {
    case '+':
      return of(left + right);
    case '-':
      return of(left - right);
    case '*':
      return of(left * right);
    default:
      return of(left.floor_divided_by(right));
  }
}

int64_t Dim::evaluate(c10::ArrayRef<int64_t> sizes) const {
  const auto value = interned(bits_).evaluate(sizes);
  if (value) return *value;
  throw UserError("sizes", str() + ": it has no value for the " + std::to_string(sizes.size()) +
                               " sizes given. Pass as many as the graph names, such that nothing "
                               "is divided by zero.");
}

void Dim::throw_not_fixed() const {
  throw InternalError("sizes", str() +
                                   ": an integer is asked for, but this size is known only "
                                   "when the graph runs.");
}

}  // namespace ahead
