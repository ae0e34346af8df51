#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace ahead::partition {

/// Which items to take so that they fit and are worth the most, for all capacities at once.
class Knapsack {
 public:
  struct Item {
    int64_t size;
    double worth;
  };

  /// Sizes are rounded up to a common unit so that there are at most `max_slots` of them; they are
  /// exact if their greatest common divisor allows.
  explicit Knapsack(std::vector<Item> items, int64_t max_slots = 4096);

  /// For each item whether to take it.
  std::vector<bool> best(int64_t capacity) const;
  /// The capacities at which the best choice is worth more than just below, largest first; at most
  /// `max_count` of them, evenly chosen. The last is 0, where only items without size fit.
  std::vector<int64_t> steps(size_t max_count) const;

 private:
  size_t slots_of(int64_t size) const;

  std::vector<Item> items_;
  int64_t unit_ = 1;
  size_t num_slots_ = 1;                  ///< one for each capacity, from 0 to all items
  std::vector<double> worth_;             ///< of the best choice, by capacity
  std::vector<std::vector<bool>> taken_;  ///< by item, by capacity
};

}  // namespace ahead::partition
