#pragma once

#include <mutex>
#include <string>
#include <unordered_set>

namespace ahead {

/// Warnings on LibTorch's warning channel, each of which is given once. Threads may share it.
class Warnings {
 public:
  /// Warns, unless a warning with the same key was given before.
  void once(const std::string& key, const std::string& message);

 private:
  std::mutex mutex_;
  std::unordered_set<std::string> said_;
};

/// Warns the user, once per process and text.
void warn_once(const std::string& message);

}  // namespace ahead
