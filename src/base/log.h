#pragma once

#include <mutex>
#include <string>
#include <unordered_set>

namespace ahead {

/// What somebody has told the user on LibTorch's warning channel. Threads may share it.
class Warnings {
 public:
  /// Says it, unless something with the same key has been said.
  void once(const std::string& key, const std::string& message);

 private:
  std::mutex mutex_;
  std::unordered_set<std::string> said_;
};

/// Tells the user something once per process and text.
void warn_once(const std::string& message);

}  // namespace ahead
