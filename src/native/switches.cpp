#include "native/switches.h"

#include <cerrno>
#include <cstdlib>

#include "base/environment.h"
#include "base/log.h"

namespace ahead::native {
namespace {

std::vector<std::string> words_in(const char* variable) {
  std::vector<std::string> words;
  const std::string text = environment(variable);
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find_first_of(", ", begin), text.size());
    if (end > begin) words.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return words;
}

/// Whether a name without its overload, or with it, is that of an operator.
bool is_name_of(const std::string& name, const std::string& op) {
  return op.starts_with(name) && (op.size() == name.size() || op[name.size()] == '.');
}

}  // namespace

bool Switches::skips(const Operator& op) const {
  for (const std::string& name : skipped)
    if (is_name_of(name, op.name()) || is_name_of("aten." + name, op.name())) return true;
  return false;
}

Switches read_switches() {
  Switches switches;
  for (const std::string& word : words_in("AHEAD_LOGS")) {
    bool* const topic = word == "fusion"    ? &switches.logs_fusion
                        : word == "kernels" ? &switches.logs_kernels
                        : word == "memory"  ? &switches.logs_memory
                                            : nullptr;
    if (topic != nullptr) {
      *topic = true;
    } else {
      warn_once("ahead: AHEAD_LOGS: there is nothing called \"" + word +
                "\" to log. Use some of fusion, kernels, memory.");
    }
  }
  const std::string limit = environment("AHEAD_FUSE_LIMIT");
  if (!limit.empty()) {
    char* end = nullptr;
    errno = 0;
    const uint64_t number = std::strtoull(limit.c_str(), &end, 10);
    if (*end == '\0' && errno == 0 && limit.front() != '-') {
      switches.fuse_limit = number;
    } else {
      warn_once("ahead: AHEAD_FUSE_LIMIT: \"" + limit + "\" is no number of kernels.");
    }
  }
  switches.skipped = words_in("AHEAD_NATIVE_SKIP");
  return switches;
}

}  // namespace ahead::native
