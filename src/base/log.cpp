#include "base/log.h"

#include <c10/util/Exception.h>

#include <mutex>
#include <unordered_set>

namespace ahead {

void warn_once(const std::string& message) {
  warn_once(message, message);
}

void warn_once(const std::string& key, const std::string& message) {
  static std::mutex mutex;
  static auto* said = new std::unordered_set<std::string>;
  {
    std::lock_guard<std::mutex> lock(mutex);
    if (!said->insert(key).second) return;
  }
  TORCH_WARN(message);
}

}  // namespace ahead
