#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace ahead {

/// Appends a number in decimal.
void append_int(std::string& out, int64_t number);
/// Appends the shortest decimal text that reads back as the same number. It always holds a `.`, an
/// `e`, `inf` or `nan`, so that it is never taken for an integer; all NaNs look alike.
void append_float(std::string& out, double number);
/// Appends a text in double quotes, on one line, with C's escapes.
void append_quoted(std::string& out, std::string_view text);

}  // namespace ahead
