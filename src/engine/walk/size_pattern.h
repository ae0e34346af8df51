#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace ahead::engine {

/// Which sizes of a backward may change from run to run, and which of them are one size, since they
/// changed together so far.
class SizePattern {
 public:
  static constexpr int32_t kFixed = -1;

  /// Nothing may change. `may_widen`: until it does.
  explicit SizePattern(std::vector<int64_t> sizes, bool may_widen = true)
      : sizes_(std::move(sizes)), may_widen_(may_widen) {}
  /// All may change but those that are 0 or 1, about which most decisions are. Those said to be
  /// shared are one size where they are equal: it saves deciding time and again that they are.
  static SizePattern all(std::vector<int64_t> sizes, const std::vector<bool>& are_shared) {
    return multiples_of({1}, std::move(sizes), are_shared);
  }
  /// The same for those that are multiples of one of these numbers.
  static SizePattern multiples_of(const std::vector<int64_t>& changing, std::vector<int64_t> sizes,
                                  const std::vector<bool>& are_shared);
  /// Lets those change that are other ones in `sizes`, if any may. Where one of them is that of a
  /// dimension, and 0 or 1, nothing may in what is made for these sizes.
  SizePattern widened(const std::vector<int64_t>& sizes,
                      const std::vector<bool>& are_dimensions) const;
  /// What is left if no graph can be made in which these change: nothing may, for good, unless more
  /// were let change than were seen to.
  SizePattern given_up(const std::vector<int64_t>& sizes) const;

  bool is_fixed() const { return symbols_.empty(); }
  /// The sizes for which it was made last.
  const std::vector<int64_t>& sizes() const { return sizes_; }
  /// The values that the changing sizes had before, in order.
  const std::vector<int64_t>& before() const { return before_; }
  /// The number of the changing size at this position; kFixed: it does not change.
  int32_t symbol(size_t position) const { return is_fixed() ? kFixed : symbols_[position]; }
  /// The values of the changing sizes, in order; nothing if the others are not as they must be.
  std::optional<std::vector<int64_t>> match(const std::vector<int64_t>& sizes) const;

 private:
  SizePattern for_only(const std::vector<int64_t>& sizes) const;

  std::vector<int64_t> sizes_;
  bool may_widen_;
  bool was_all_ = false;          ///< some may change that were never seen to
  std::vector<int32_t> symbols_;  ///< for each position; empty: all are fixed
  std::vector<int64_t> before_;   ///< for each changing size
  /// The pattern for others, of which these sizes are an exception; null: they are none.
  std::shared_ptr<const SizePattern> general_;
};

}  // namespace ahead::engine
