#include "base/text.h"

#include <charconv>
#include <cmath>

namespace ahead {

void append_int(std::string& out, int64_t number) {
  char digits[24];
  auto end = std::to_chars(std::begin(digits), std::end(digits), number);
  out.append(digits, end.ptr);
}

void append_float(std::string& out, double number) {
  if (std::isnan(number)) {
    out += "nan";
    return;
  }
  char digits[40];
  auto end = std::to_chars(std::begin(digits), std::end(digits), number);
  std::string_view text(digits, static_cast<size_t>(end.ptr - digits));
  out += text;
  if (text.find_first_of(".ei") == std::string_view::npos) out += ".0";
}

void append_quoted(std::string& out, std::string_view text) {
  static const char* hex = "0123456789abcdef";
  out += '"';
  for (char c : text) {
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\t':
        out += "\\t";
        break;
      default:
        if (auto byte = static_cast<unsigned char>(c); byte < 0x20 || byte == 0x7f) {
          out.append("\\x").append(1, hex[byte >> 4]).append(1, hex[byte & 15]);
        } else {
          out += c;
        }
    }
  }
  out += '"';
}

}  // namespace ahead
