#pragma once

#include <c10/util/Exception.h>

#include <cstdint>
#include <cstdlib>
#include <optional>

/// What all fuzzers need.
namespace ahead::test {

/// The number that an environment variable has; none if it is not set.
inline std::optional<uint64_t> number_from_environment(const char* name) {
  const char* text = std::getenv(name);
  if (text == nullptr || *text == '\0') return std::nullopt;
  return std::strtoull(text, nullptr, 10);
}

/// While it exists, LibTorch's warnings are not shown.
class QuietWarnings {
 private:
  class Handler : public c10::WarningHandler {
    void process(const c10::Warning&) override {}
  };
  Handler handler_;
  c10::WarningUtils::WarningHandlerGuard guard_{&handler_};
};

}  // namespace ahead::test
