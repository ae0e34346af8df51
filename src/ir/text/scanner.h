#pragma once

#include <charconv>
#include <optional>
#include <string_view>
#include <system_error>

namespace ahead {

/// Reads a text from left to right.
class Scanner {
 public:
  explicit Scanner(std::string_view text) : rest_(text) {}

  bool is_at_end() const { return rest_.empty(); }
  /// What was not read yet.
  std::string_view rest() const { return rest_; }
  void skip(size_t count) { rest_.remove_prefix(count); }

  /// Reads this, if it comes next.
  bool accept(std::string_view text) {
    if (rest_.substr(0, text.size()) != text) return false;
    skip(text.size());
    return true;
  }

  /// Reads a number, if one comes next.
  template <class Number>
  std::optional<Number> number() {
    Number value{};
    const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
    if (error != std::errc()) return std::nullopt;
    skip(static_cast<size_t>(end - rest_.data()));
    return value;
  }

 private:
  std::string_view rest_;
};

}  // namespace ahead
