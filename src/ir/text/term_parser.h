#pragma once

#include <ATen/core/jit_type_base.h>

#include <string>

#include "ahead/graph.h"
#include "ir/text/lexer.h"

namespace ahead {

/// Reads the parts of the text form that stand for themselves: marks, numbers, metadata, slots and
/// constants. A missing part is an error at the place where it should be.
class TermParser {
 public:
  explicit TermParser(Lexer& lexer) : lexer_(lexer) {}

  /// Takes the mark if it is next.
  bool accept(char mark);
  Token expect(char mark);
  /// Takes a token of this kind; the error says that `what` was expected.
  Token expect(Token::Kind kind, const char* what);
  /// Reads items, with commas in between, up to the mark `close`, which is returned.
  template <class Item>
  Token separated(char close, Item&& item);

  int64_t integer(const char* what);
  /// An integer that is not negative.
  int64_t extent(const char* what);
  /// All of a tensor's metadata but requires_grad.
  TensorMeta meta();
  bool requires_grad();
  Slot slot();
  /// A constant other than a list, as it is written. The type, if known, tells which words go here.
  c10::IValue constant(const c10::TypePtr& type);

 protected:
  Lexer& lexer_;

 private:
  double real();
  std::string quoted(const char* what);
  Dim dim(const char* what);
  TensorMeta::Dims dims(char close);
  c10::IValue integer_constant();
  c10::IValue word_constant(const c10::TypePtr& type);
};

template <class Item>
Token TermParser::separated(char close, Item&& item) {
  if (!lexer_.peek().is(close)) {
    do {
      item();
    } while (accept(','));
  }
  return expect(close);
}

}  // namespace ahead
