#include "base/log.h"

#include <c10/util/Exception.h>

namespace ahead {

void Warnings::once(const std::string& key, const std::string& message) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!said_.insert(key).second) return;
  }
  TORCH_WARN(message);
}

void warn_once(const std::string& message) {
  static auto* warnings = new Warnings;
  warnings->once(message, message);
}

}  // namespace ahead
