#include "ir/sizes/float_expression.h"

#include <c10/util/Exception.h>

#include <bit>
#include <charconv>

#include "ir/text/scanner.h"

namespace ahead {
namespace {

constexpr const char* float_functions[] = {"add", "sub", "mul", "div"};

double apply(std::string_view function, double left, double right) {
  if (function == "add") return left + right;
  if (function == "sub") return left - right;
  return function == "mul" ? left * right : left / right;
}

std::string text_of(double number) {
  char text[32];
  const auto end = std::to_chars(text, text + sizeof(text), number).ptr;
  return {text, end};
}

}  // namespace

struct FloatExpression::Step {
  enum class Kind : uint8_t { Constant, Symbol, Size, Call };
  Kind kind;
  double constant = 0;
  uint32_t symbol = 0;
  SizeExpression size = 0;
  const char* function = nullptr;
  FloatExpression left, right;

  // An expression has a step at once, so the operands of other kinds have none.
  explicit Step(Kind kind) : kind(kind), left(nullptr), right(nullptr) {}
};

FloatExpression::FloatExpression(double constant) {
  auto step = std::make_shared<Step>(Step::Kind::Constant);
  step->constant = constant;
  step_ = std::move(step);
}

FloatExpression FloatExpression::symbol(uint32_t number) {
  auto step = std::make_shared<Step>(Step::Kind::Symbol);
  step->symbol = number;
  return FloatExpression(std::move(step));
}

FloatExpression FloatExpression::of(const SizeExpression& size) {
  if (const auto known = size.constant()) return static_cast<double>(*known);
  auto step = std::make_shared<Step>(Step::Kind::Size);
  step->size = size;
  return FloatExpression(std::move(step));
}

FloatExpression FloatExpression::call(const char* function, const FloatExpression& left,
                                      const FloatExpression& right) {
  if (left.constant() && right.constant())
    return apply(function, *left.constant(), *right.constant());
  auto step = std::make_shared<Step>(Step::Kind::Call);
  step->function = function;
  step->left = left;
  step->right = right;
  return FloatExpression(std::move(step));
}

FloatExpression FloatExpression::operator+(const FloatExpression& other) const {
  return call("add", *this, other);
}

FloatExpression FloatExpression::operator-(const FloatExpression& other) const {
  return call("sub", *this, other);
}

FloatExpression FloatExpression::operator*(const FloatExpression& other) const {
  return call("mul", *this, other);
}

FloatExpression FloatExpression::operator/(const FloatExpression& other) const {
  return call("div", *this, other);
}

std::optional<double> FloatExpression::constant() const {
  return step_->kind == Step::Kind::Constant ? std::optional(step_->constant) : std::nullopt;
}

std::optional<double> FloatExpression::evaluate(c10::ArrayRef<int64_t> sizes) const {
  switch (step_->kind) {
    case Step::Kind::Constant:
      return step_->constant;
    case Step::Kind::Symbol:
      if (step_->symbol >= sizes.size()) return std::nullopt;
      return std::bit_cast<double>(sizes[step_->symbol]);
    case Step::Kind::Size: {
      const auto size = step_->size.evaluate(sizes);
      return size ? std::optional(static_cast<double>(*size)) : std::nullopt;
    }
    case Step::Kind::Call:
      break;
  }
  const auto left = step_->left.evaluate(sizes), right = step_->right.evaluate(sizes);
  if (!left || !right) return std::nullopt;
  return apply(step_->function, *left, *right);
}

std::string FloatExpression::str() const {
  switch (step_->kind) {
    case Step::Kind::Constant:
      return text_of(step_->constant);
    case Step::Kind::Symbol:
      return "f" + std::to_string(step_->symbol);
    case Step::Kind::Size:
      return "float(" + step_->size.str() + ")";
    case Step::Kind::Call:
      break;
  }
  return std::string(step_->function) + "(" + step_->left.str() + ", " + step_->right.str() + ")";
}

FloatExpression FloatExpression::with_sizes(c10::ArrayRef<SizeExpression> sizes) const {
  switch (step_->kind) {
    case Step::Kind::Constant:
      return *this;
    case Step::Kind::Symbol: {
      const SizeExpression& bits = sizes.at(step_->symbol);
      if (const auto known = bits.constant()) return std::bit_cast<double>(*known);
      std::vector<uint32_t> symbols;
      bits.add_symbols(symbols);
      TORCH_INTERNAL_ASSERT(bits == SizeExpression::symbol(symbols.at(0)));
      return symbol(symbols[0]);
    }
    case Step::Kind::Size:
      return of(step_->size.with_sizes(sizes));
    case Step::Kind::Call:
      break;
  }
  return call(step_->function, step_->left.with_sizes(sizes), step_->right.with_sizes(sizes));
}

void FloatExpression::add_symbols(std::vector<uint32_t>& symbols) const {
  if (step_->kind == Step::Kind::Symbol) symbols.push_back(step_->symbol);
  if (step_->kind == Step::Kind::Size) step_->size.add_symbols(symbols);
  if (step_->kind != Step::Kind::Call) return;
  step_->left.add_symbols(symbols);
  step_->right.add_symbols(symbols);
}

/// number | "f" integer | "float(" size ")" | function "(" expression ", " expression ")"
class FloatExpression::Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  std::optional<FloatExpression> all() {
    auto read = expression();
    return text_.is_at_end() ? read : std::nullopt;
  }

 private:
  std::optional<FloatExpression> expression() {
    for (const char* function : float_functions) {
      if (text_.accept(std::string(function) + "(")) return arguments(function);
    }
    if (text_.accept("float(")) return size();
    if (text_.accept("f")) {
      const auto symbol = text_.number<uint32_t>();
      return symbol ? std::optional(FloatExpression::symbol(*symbol)) : std::nullopt;
    }
    const auto constant = text_.number<double>();
    return constant ? std::optional(FloatExpression(*constant)) : std::nullopt;
  }

  std::optional<FloatExpression> size() {
    size_t end = 0;
    const std::string_view rest = text_.rest();
    for (int depth = 1; end < rest.size(); ++end) {
      if (rest[end] == '(') ++depth;
      if (rest[end] == ')' && --depth == 0) break;
    }
    if (end == rest.size()) return std::nullopt;
    const auto read = SizeExpression::parse(rest.substr(0, end));
    text_.skip(end + 1);
    return read ? std::optional(FloatExpression::of(*read)) : std::nullopt;
  }

  std::optional<FloatExpression> arguments(const char* function) {
    const auto left = expression();
    if (!left || !text_.accept(", ")) return std::nullopt;
    const auto right = expression();
    if (!right || !text_.accept(")")) return std::nullopt;
    return call(function, *left, *right);
  }

  Scanner text_;
};

std::optional<FloatExpression> FloatExpression::parse(std::string_view text) {
  return Parser(text).all();
}

}  // namespace ahead
