#include "base/intern.h"

#include <mutex>
#include <unordered_set>

namespace ahead {

const std::string* intern(std::string_view text) {
  static std::mutex mutex;
  static auto* texts = new std::unordered_set<std::string>;
  std::lock_guard<std::mutex> lock(mutex);
  return &*texts->emplace(text).first;
}

}  // namespace ahead
