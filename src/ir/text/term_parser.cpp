#include "ir/text/term_parser.h"

#include <c10/core/Scalar.h>

#include <charconv>
#include <limits>

#include "ir/constants.h"
#include "ir/names.h"
#include "ir/sizes/expression_node.h"
#include "ir/tensor_meta.h"

namespace ahead {

bool TermParser::accept(char mark) {
  const bool found = lexer_.peek().is(mark);
  if (found) lexer_.next();
  return found;
}

Token TermParser::expect(char mark) {
  if (lexer_.peek().is(mark)) return lexer_.next();
  lexer_.fail(lexer_.peek().offset,
              "expected '" + std::string(1, mark) + "', found " + describe(lexer_.peek()) + ".");
}

Token TermParser::expect(Token::Kind kind, const char* what) {
  if (lexer_.peek().kind == kind) return lexer_.next();
  lexer_.fail(lexer_.peek().offset,
              "expected " + std::string(what) + ", found " + describe(lexer_.peek()) + ".");
}

int64_t TermParser::integer(const char* what) {
  const Token token = expect(Token::Kind::integer, what);
  int64_t number = 0;
  if (std::from_chars(token.text.begin(), token.text.end(), number).ec != std::errc()) {
    lexer_.fail(token.offset, "this number does not fit in 64 bits.");
  }
  return number;
}

double TermParser::real() {
  const Token token = lexer_.next();
  if (token.is_word("inf")) return std::numeric_limits<double>::infinity();
  if (token.is_word("nan")) return std::numeric_limits<double>::quiet_NaN();
  double number = 0;
  const bool is_number = token.kind == Token::Kind::real || token.kind == Token::Kind::integer;
  if (!is_number ||
      std::from_chars(token.text.begin(), token.text.end(), number).ec != std::errc()) {
    lexer_.fail(token.offset, "expected a number, found " + describe(token) + ".");
  }
  return number;
}

std::string TermParser::quoted(const char* what) {
  expect('(');
  std::string text = lexer_.unquote(expect(Token::Kind::string, what));
  expect(')');
  return text;
}

int64_t TermParser::extent(const char* what) {
  const size_t offset = lexer_.peek().offset;
  const int64_t number = integer(what);
  if (number < 0) lexer_.fail(offset, "sizes, strides and offsets of tensors are not negative.");
  return number;
}

Dim TermParser::dim(const char* what) {
  const Token& token = lexer_.peek();
  std::string_view text = lexer_.rest();
  const std::string_view behind = text.substr(std::min(text.size(), token.text.size()));
  const bool is_expression =
      token.kind == Token::Kind::word || (token.kind == Token::Kind::integer &&
                                          (behind.starts_with("*") || behind.starts_with(" + ")));
  if (!is_expression) return extent(what);
  const size_t length = text.size();
  const auto expression = SizeExpression::parse_front(text);
  if (!expression) return extent(what);
  lexer_.skip(length - text.size());
  return Dim::of(*expression);
}

TensorMeta::Dims TermParser::dims(char close) {
  TensorMeta::Dims dims;
  separated(close, [&] { dims.push_back(dim("an integer")); });
  return dims;
}

TensorMeta TermParser::meta() {
  TensorMeta meta;
  const Token dtype = expect(Token::Kind::word, "a dtype");
  auto known = find_dtype(dtype.text);
  if (!known) {
    lexer_.fail(dtype.offset, "unknown dtype " + describe(dtype) + "; f32, i64 or bool are some.");
  }
  meta.dtype = *known;
  expect('[');
  meta.sizes = dims(']');
  meta.strides = contiguous_strides(meta.sizes);
  if (accept('{')) meta.strides = dims('}');
  if (accept('+')) meta.offset = dim("a storage offset");
  if (lexer_.peek().kind == Token::Kind::device) {
    const Token device = lexer_.next();
    try {
      meta.device = at::Device(std::string(device.text));
    } catch (const c10::Error&) {
      lexer_.fail(device.offset, "unknown device " + describe(device) + ".");
    }
  }
  return meta;
}

Slot TermParser::slot() {
  const Token name = expect(Token::Kind::word, "a slot such as 'Primal 0'");
  const SlotFacts* kind = find_slot_kind(name.text);
  if (kind == nullptr) lexer_.fail(name.offset, "unknown slot " + describe(name) + ".");
  const size_t offset = lexer_.peek().offset;
  const int64_t index = integer("the slot's index");
  if (index != static_cast<int32_t>(index))
    lexer_.fail(offset, "this index does not fit in 32 bits.");
  return {kind->kind, static_cast<int32_t>(index)};
}

bool TermParser::requires_grad() {
  const bool found = lexer_.peek().is_word("requires_grad");
  if (found) lexer_.next();
  return found;
}

c10::IValue TermParser::integer_constant() {
  const Token token = lexer_.peek();
  uint64_t number = 0;
  if (token.text[0] != '-' &&
      std::from_chars(token.text.begin(), token.text.end(), number).ec == std::errc() &&
      number > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
    lexer_.next();
    return at::Scalar(number);
  }
  return integer("an integer");
}

c10::IValue TermParser::word_constant(const c10::TypePtr& type) {
  const Token token = lexer_.peek();
  if (token.text == "inf" || token.text == "nan") return real();
  lexer_.next();
  if (token.text == "none") return {};
  if (token.text == "true") return true;
  if (token.text == "false") return false;
  if (token.text == "generator") return default_generator(quoted("the name of a device"));
  if (token.text == "complex") {
    expect('(');
    const double re = real();
    expect(',');
    const double im = real();
    expect(')');
    return c10::complex<double>(re, im);
  }
  if (token.text == "device") {
    const size_t offset = lexer_.peek().offset;
    const std::string name = quoted("the name of a device");
    try {
      return at::Device(name);
    } catch (const c10::Error&) {
      lexer_.fail(offset, "unknown device '" + name + "'.");
    }
  }
  if (token.text == "size") {
    const size_t offset = lexer_.peek().offset;
    const std::string text = quoted("a size such as \"8*s0\"");
    const auto expression = SizeExpression::parse(text);
    if (!expression || expression->constant())
      lexer_.fail(offset, "'" + text + "' is not made of the sizes s0, s1 and so on.");
    return SizeNode::make(*expression, nullptr);
  }
  if (token.text == "real") {
    const size_t offset = lexer_.peek().offset;
    const std::string text = quoted("a number such as \"div(2, float(s0))\"");
    const auto expression = FloatExpression::parse(text);
    if (!expression || expression->constant())
      lexer_.fail(offset, "'" + text + "' is not made of the sizes s0, s1 and so on.");
    return FloatNode::make(*expression, nullptr);
  }
  if (token.text == "opaque") return OpaqueConstant::make(token.text, quoted("a type's name"));
  if (auto named = find_named_constant(token.text)) {
    if (type != nullptr && without_optional(*type).kind() != named->kind) {
      lexer_.fail(token.offset, describe(token) + " does not go where " + type->str() + " is due.");
    }
    return named->number;
  }
  lexer_.fail(token.offset, "expected an argument, found " + describe(token) + ".");
}

c10::IValue TermParser::constant(const c10::TypePtr& type) {
  const Token& token = lexer_.peek();
  switch (token.kind) {
    case Token::Kind::integer:
      return integer_constant();
    case Token::Kind::real:
      return real();
    case Token::Kind::string:
      return lexer_.unquote(lexer_.next());
    case Token::Kind::word:
      return word_constant(type);
    default:
      lexer_.fail(token.offset, "expected an argument, found " + describe(token) + ".");
  }
}

}  // namespace ahead
