#include "ir/sizes/size_expression.h"

#include <c10/util/Exception.h>

#include <algorithm>

#include "ir/text/scanner.h"

namespace ahead {
namespace {

constexpr const char* size_functions[] = {"floordiv", "mod", "min", "max"};

constexpr const char* too_large = "a size does not fit in 64 bits";

std::optional<int64_t> apply(std::string_view function, int64_t left, int64_t right) {
  if (function == "min") return std::min(left, right);
  if (function == "max") return std::max(left, right);
  if (right == 0 || (right == -1 && left == INT64_MIN)) return std::nullopt;
  const int64_t rounded_to_zero = left / right;
  const bool rounds_up = left % right != 0 && (left < 0) != (right < 0);
  const int64_t quotient = rounded_to_zero - (rounds_up ? 1 : 0);
  return function == "floordiv" ? quotient : left - quotient * right;
}

}  // namespace

/// What polynomials are made of: a size, or a function of two expressions.
struct SizeExpression::Atom {
  std::string text;
  uint32_t symbol = 0;
  const char* function = nullptr;
  SizeExpression left, right;
};

std::string SizeExpression::Term::key() const {
  std::string key;
  for (const auto& atom : atoms) {
    if (!key.empty()) key += '*';
    key += atom->text;
  }
  return key;
}

SizeExpression::SizeExpression(int64_t constant) {
  add({constant, {}});
}

SizeExpression SizeExpression::of(std::shared_ptr<const Atom> atom) {
  SizeExpression expression;
  expression.add({1, {std::move(atom)}});
  return expression;
}

SizeExpression SizeExpression::symbol(uint32_t number) {
  auto atom = std::make_shared<Atom>();
  atom->text = "s" + std::to_string(number);
  atom->symbol = number;
  return of(std::move(atom));
}

SizeExpression SizeExpression::call(const char* function, const SizeExpression& left,
                                    const SizeExpression& right) {
  if (left.constant() && right.constant()) {
    if (auto known = apply(function, *left.constant(), *right.constant())) return *known;
  }
  auto atom = std::make_shared<Atom>();
  atom->text = std::string(function) + "(" + left.str() + ", " + right.str() + ")";
  atom->function = function;
  atom->left = left;
  atom->right = right;
  return of(std::move(atom));
}

void SizeExpression::add(Term term) {
  if (term.factor == 0) return;
  const std::string key = term.key();
  const auto place = std::lower_bound(
      terms_.begin(), terms_.end(), key,
      [](const Term& other, const std::string& wanted) { return other.key() < wanted; });
  if (place == terms_.end() || place->key() != key) {
    terms_.insert(place, std::move(term));
    return;
  }
  TORCH_CHECK(!__builtin_add_overflow(place->factor, term.factor, &place->factor), too_large);
  if (place->factor == 0) terms_.erase(place);
}

SizeExpression SizeExpression::operator+(const SizeExpression& other) const {
  SizeExpression sum = *this;
  for (const Term& term : other.terms_) sum.add(term);
  return sum;
}

SizeExpression SizeExpression::operator-(const SizeExpression& other) const {
  return *this + other * SizeExpression(-1);
}

SizeExpression SizeExpression::operator*(const SizeExpression& other) const {
  SizeExpression product;
  for (const Term& a : terms_) {
    for (const Term& b : other.terms_) {
      Term term{0, a.atoms};
      TORCH_CHECK(!__builtin_mul_overflow(a.factor, b.factor, &term.factor), too_large);
      term.atoms.insert(term.atoms.end(), b.atoms.begin(), b.atoms.end());
      std::sort(term.atoms.begin(), term.atoms.end(),
                [](const auto& x, const auto& y) { return x->text < y->text; });
      product.add(std::move(term));
    }
  }
  return product;
}

SizeExpression SizeExpression::floor_divided_by(const SizeExpression& divisor) const {
  const std::optional<int64_t> number = divisor.constant();
  const bool is_exact = number && *number != 0 &&
                        std::all_of(terms_.begin(), terms_.end(),
                                    [&](const Term& term) { return term.factor % *number == 0; });
  if (!is_exact) return call("floordiv", *this, divisor);
  SizeExpression quotient;
  for (const Term& term : terms_) quotient.add({term.factor / *number, term.atoms});
  return quotient;
}

SizeExpression SizeExpression::modulo(const SizeExpression& divisor) const {
  const std::optional<int64_t> number = divisor.constant();
  const bool is_exact = number && *number != 0 &&
                        std::all_of(terms_.begin(), terms_.end(),
                                    [&](const Term& term) { return term.factor % *number == 0; });
  return is_exact ? SizeExpression(0) : call("mod", *this, divisor);
}

SizeExpression SizeExpression::min(const SizeExpression& other) const {
  return *this == other ? *this : call("min", *this, other);
}

SizeExpression SizeExpression::max(const SizeExpression& other) const {
  return *this == other ? *this : call("max", *this, other);
}

std::optional<int64_t> SizeExpression::constant() const {
  if (terms_.empty()) return 0;
  if (terms_.size() == 1 && terms_[0].atoms.empty()) return terms_[0].factor;
  return std::nullopt;
}

std::optional<int64_t> SizeExpression::evaluate(c10::ArrayRef<int64_t> sizes) const {
  int64_t sum = 0;
  for (const Term& term : terms_) {
    int64_t product = term.factor;
    for (const auto& atom : term.atoms) {
      std::optional<int64_t> value;
      if (atom->function != nullptr) {
        const auto left = atom->left.evaluate(sizes), right = atom->right.evaluate(sizes);
        if (left && right) value = apply(atom->function, *left, *right);
      } else if (atom->symbol < sizes.size()) {
        value = sizes[atom->symbol];
      }
      if (!value || __builtin_mul_overflow(product, *value, &product)) return std::nullopt;
    }
    if (__builtin_add_overflow(sum, product, &sum)) return std::nullopt;
  }
  return sum;
}

SizeExpression SizeExpression::with_sizes(c10::ArrayRef<SizeExpression> sizes) const {
  const auto replaced = [&](const Atom& atom) -> SizeExpression {
    if (atom.function == nullptr) return sizes.at(atom.symbol);
    const SizeExpression left = atom.left.with_sizes(sizes), right = atom.right.with_sizes(sizes);
    const std::string_view function = atom.function;
    if (function == "min") return left.min(right);
    if (function == "max") return left.max(right);
    return function == "mod" ? left.modulo(right) : left.floor_divided_by(right);
  };
  SizeExpression sum;
  for (const Term& term : terms_) {
    SizeExpression product = term.factor;
    for (const auto& atom : term.atoms) product = product * replaced(*atom);
    sum = sum + product;
  }
  return sum;
}

void SizeExpression::add_symbols(std::vector<uint32_t>& symbols) const {
  for (const Term& term : terms_) {
    for (const auto& atom : term.atoms) {
      if (atom->function == nullptr) symbols.push_back(atom->symbol);
      atom->left.add_symbols(symbols);
      atom->right.add_symbols(symbols);
    }
  }
}

std::string SizeExpression::str() const {
  if (terms_.empty()) return "0";
  std::string text;
  for (const Term& term : terms_) {
    if (!text.empty()) text += " + ";
    const std::string key = term.key();
    if (key.empty() || term.factor != 1) text += std::to_string(term.factor);
    if (!key.empty() && term.factor != 1) text += '*';
    text += key;
  }
  return text;
}

/// sum: product { " + " product };  product: factor { "*" factor };
/// factor: integer | "s" integer | function "(" sum ", " sum ")"
class SizeExpression::Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  std::string_view rest() const { return text_.rest(); }

  std::optional<SizeExpression> sum() {
    std::optional<SizeExpression> total = product();
    while (total && text_.accept(" + ")) {
      const auto next = product();
      total = next ? std::optional(*total + *next) : std::nullopt;
    }
    return total;
  }

 private:
  std::optional<SizeExpression> product() {
    std::optional<SizeExpression> total = factor();
    while (total && text_.accept("*")) {
      const auto next = factor();
      total = next ? std::optional(*total * *next) : std::nullopt;
    }
    return total;
  }

  std::optional<SizeExpression> factor() {
    for (const char* function : size_functions) {
      if (text_.accept(std::string(function) + "(")) return arguments(function);
    }
    if (text_.accept("s")) {
      const auto symbol = text_.number<uint32_t>();
      return symbol ? std::optional(SizeExpression::symbol(*symbol)) : std::nullopt;
    }
    const auto constant = text_.number<int64_t>();
    return constant ? std::optional(SizeExpression(*constant)) : std::nullopt;
  }

  std::optional<SizeExpression> arguments(const char* function) {
    const auto left = sum();
    if (!left || !text_.accept(", ")) return std::nullopt;
    const auto right = sum();
    if (!right || !text_.accept(")")) return std::nullopt;
    return call(function, *left, *right);
  }

  Scanner text_;
};

std::optional<SizeExpression> SizeExpression::parse_front(std::string_view& text) {
  Parser parser(text);
  auto expression = parser.sum();
  text = parser.rest();
  return expression;
}

std::optional<SizeExpression> SizeExpression::parse(std::string_view text) {
  auto expression = parse_front(text);
  return text.empty() ? expression : std::nullopt;
}

}  // namespace ahead
