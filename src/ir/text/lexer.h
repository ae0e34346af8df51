#pragma once

#include <string>
#include <string_view>

namespace ahead {

/// One word of the graph's text form.
struct Token {
  enum class Kind {
    end,
    value,    ///< `%name`; the text is the name
    word,     ///< letters, digits, `_` and `.`, not starting with a digit
    integer,  ///< digits, perhaps after a minus sign
    real,     ///< a number with a point or an exponent, or `-inf`
    string,   ///< in double quotes; the text includes them
    device,   ///< `@cuda:0`; the text is the device
    tag,      ///< `!name`; the text is the name
    mark,     ///< a single character
  };
  Kind kind = Kind::end;
  std::string_view text;
  size_t offset = 0;

  bool is(char mark) const { return kind == Kind::mark && text[0] == mark; }
  bool is_word(std::string_view word) const { return kind == Kind::word && text == word; }
};

/// Cuts a text into tokens, one ahead. White space, line ends and comments (`#` to the end of the
/// line) separate tokens and mean nothing else.
class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(source) { next(); }

  /// The token at hand.
  const Token& peek() const { return token_; }
  /// Returns the token at hand and moves on to the next one.
  Token next();
  /// The text from the token at hand on.
  std::string_view rest() const { return source_.substr(token_.offset); }
  /// Moves on to the token after this many characters of it.
  void skip(size_t count);
  /// Throws UserError with the line and the column of an offset, and a caret below the line.
  [[noreturn]] void fail(size_t offset, const std::string& message) const;
  /// The contents of a string token.
  std::string unquote(const Token& token) const;

 private:
  Token scan();
  Token scan_number();
  Token scan_string();
  void skip_space();
  /// Takes characters while `wanted` holds and returns them.
  template <class Wanted>
  std::string_view take_while(Wanted&& wanted);
  bool at_end() const { return position_ == source_.size(); }
  bool starts_with(std::string_view text) const {
    return source_.substr(position_, text.size()) == text;
  }

  std::string_view source_;
  size_t position_ = 0;
  Token token_;
};

/// How an error message shows a token.
std::string describe(const Token& token);

}  // namespace ahead
