#pragma once

#include <atomic>
#include <bit>
#include <cstdint>

namespace ahead::detail {

/// Whether the last calls ran from programs. Counts of threads that call at once may get lost.
class RecentCalls {
 public:
  void note(bool was_hit) {
    hits_.store(hits_.load(std::memory_order_relaxed) << 1 | (was_hit ? 1 : 0),
                std::memory_order_relaxed);
  }
  /// Fewer than a quarter of the last 64 did: what is observed now hardly ever comes again.
  bool are_all_new() const { return std::popcount(hits_.load(std::memory_order_relaxed)) < 16; }

 private:
  std::atomic<uint64_t> hits_{~uint64_t{0}};
};

}  // namespace ahead::detail
