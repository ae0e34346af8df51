#include "ir/text/lexer.h"

#include <algorithm>
#include <utility>

#include "ahead/errors.h"

namespace ahead {
namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

bool is_word_character(char c) {
  return is_letter(c) || is_digit(c) || c == '.';
}

bool is_space(char c) {
  return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

int hex_digit(char c) {
  if (is_digit(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

}  // namespace

Token Lexer::next() {
  Token current = token_;
  token_ = scan();
  return current;
}

void Lexer::skip(size_t count) {
  position_ = token_.offset + count;
  token_ = scan();
}

template <class Wanted>
std::string_view Lexer::take_while(Wanted&& wanted) {
  const size_t start = position_;
  while (!at_end() && wanted(source_[position_])) ++position_;
  return source_.substr(start, position_ - start);
}

void Lexer::skip_space() {
  for (take_while(is_space); starts_with("#"); take_while(is_space)) {
    take_while([](char c) { return c != '\n'; });
  }
}

Token Lexer::scan() {
  skip_space();
  const size_t start = position_;
  if (at_end()) return {Token::Kind::end, {}, start};
  const char c = source_[start];
  if (is_letter(c)) return {Token::Kind::word, take_while(is_word_character), start};
  if (is_digit(c) || c == '-') return scan_number();
  if (c == '"') return scan_string();
  ++position_;
  if (c == '%') return {Token::Kind::value, take_while(is_word_character), start};
  if (c == '!') return {Token::Kind::tag, take_while(is_word_character), start};
  if (c == '@') {
    auto in_device = [](char d) { return is_word_character(d) || d == ':'; };
    return {Token::Kind::device, take_while(in_device), start};
  }
  if (std::string_view("()[]{}:,=+").find(c) == std::string_view::npos) {
    fail(start, "unexpected character '" + std::string(1, c) + "'.");
  }
  return {Token::Kind::mark, source_.substr(start, 1), start};
}

Token Lexer::scan_number() {
  const size_t start = position_;
  if (source_[position_] == '-') ++position_;
  auto kind = Token::Kind::integer;
  if (starts_with("inf")) {
    position_ += 3;
    kind = Token::Kind::real;
  } else if (take_while(is_digit).empty()) {
    fail(start, "expected a number after '-'.");
  }
  if (starts_with(".")) {
    kind = Token::Kind::real;
    ++position_;
    take_while(is_digit);
  }
  if (starts_with("e")) {
    kind = Token::Kind::real;
    ++position_;
    if (starts_with("-") || starts_with("+")) ++position_;
    if (take_while(is_digit).empty()) fail(start, "expected digits in the exponent.");
  }
  if (!at_end() && is_word_character(source_[position_])) fail(start, "malformed number.");
  return {kind, source_.substr(start, position_ - start), start};
}

Token Lexer::scan_string() {
  const size_t start = position_++;
  while (!at_end() && source_[position_] != '"' && source_[position_] != '\n') {
    position_ += source_[position_] == '\\' ? 2 : 1;
    position_ = std::min(position_, source_.size());
  }
  if (at_end() || source_[position_] != '"') fail(start, "this string has no end.");
  ++position_;
  return {Token::Kind::string, source_.substr(start, position_ - start), start};
}

std::string Lexer::unquote(const Token& token) const {
  const std::string_view body = token.text.substr(1, token.text.size() - 2);
  std::string text;
  for (size_t i = 0; i < body.size(); ++i) {
    if (body[i] != '\\') {
      text += body[i];
      continue;
    }
    const char c = body[++i];
    if (c == '"' || c == '\\') {
      text += c;
    } else if (c == 'n') {
      text += '\n';
    } else if (c == 't') {
      text += '\t';
    } else if (c == 'x' && i + 2 < body.size() && hex_digit(body[i + 1]) >= 0 &&
               hex_digit(body[i + 2]) >= 0) {
      text += static_cast<char>(hex_digit(body[i + 1]) * 16 + hex_digit(body[i + 2]));
      i += 2;
    } else {
      fail(token.offset + i, "unknown escape; use \\n, \\t, \\\", \\\\ or \\xHH.");
    }
  }
  return text;
}

void Lexer::fail(size_t offset, const std::string& message) const {
  const std::string_view before = source_.substr(0, offset);
  const size_t line = 1 + static_cast<size_t>(std::count(before.begin(), before.end(), '\n'));
  const size_t line_start = before.rfind('\n') + 1;  // npos + 1 is 0
  const size_t line_end = std::min(source_.find('\n', offset), source_.size());
  std::string margin(source_.substr(line_start, offset - line_start));
  for (char& c : margin) c = c == '\t' ? '\t' : ' ';
  throw UserError("parse", "line " + std::to_string(line) + ", column " +
                               std::to_string(offset - line_start + 1) + ": " + message + "\n  " +
                               std::string(source_.substr(line_start, line_end - line_start)) +
                               "\n  " + margin + "^");
}

std::string describe(const Token& token) {
  switch (token.kind) {
    case Token::Kind::end:
      return "the end of the text";
    case Token::Kind::value:
      return "'%" + std::string(token.text) + "'";
    case Token::Kind::tag:
      return "'!" + std::string(token.text) + "'";
    case Token::Kind::device:
      return "'@" + std::string(token.text) + "'";
    default:
      return "'" + std::string(token.text) + "'";
  }
}

}  // namespace ahead
