#pragma once

#include <cstdio>
#include <string>

namespace models {

/// What a lesson claims, and whether it is so.
class Checks {
 public:
  /// Prints a claim and whether it holds.
  void operator()(bool holds, const std::string& claim) {
    std::printf("%-5s  %s\n", holds ? "yes" : "NO", claim.c_str());
    all_hold_ = all_hold_ && holds;
  }
  /// What the program returns: 0 if every claim held.
  int exit_code() const { return all_hold_ ? 0 : 1; }

 private:
  bool all_hold_ = true;
};

}  // namespace models
