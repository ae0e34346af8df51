#include "partition/knapsack.h"

#include <algorithm>
#include <numeric>

namespace ahead::partition {

Knapsack::Knapsack(std::vector<Item> items, int64_t max_slots) : items_(std::move(items)) {
  int64_t total = 0, divisor = 0;
  for (const Item& item : items_) {
    total += item.size;
    divisor = std::gcd(divisor, item.size);
  }
  unit_ = std::max({int64_t{1}, divisor, (total + max_slots - 1) / max_slots});
  for (const Item& item : items_) num_slots_ += slots_of(item.size);
  worth_.assign(num_slots_, 0);
  for (const Item& item : items_) {
    std::vector<bool>& taken = taken_.emplace_back(num_slots_);
    const size_t size = slots_of(item.size);
    for (size_t capacity = num_slots_; capacity-- > size;) {
      const double with = worth_[capacity - size] + item.worth;
      if (with <= worth_[capacity]) continue;
      worth_[capacity] = with;
      taken[capacity] = true;
    }
  }
}

size_t Knapsack::slots_of(int64_t size) const {
  return static_cast<size_t>((size + unit_ - 1) / unit_);
}

std::vector<bool> Knapsack::best(int64_t capacity) const {
  size_t left =
      std::min(static_cast<size_t>(std::max<int64_t>(capacity, 0) / unit_), num_slots_ - 1);
  std::vector<bool> chosen(items_.size());
  for (size_t i = items_.size(); i-- > 0;) {
    if (!taken_[i][left]) continue;
    chosen[i] = true;
    left -= slots_of(items_[i].size);
  }
  return chosen;
}

std::vector<int64_t> Knapsack::steps(size_t max_count) const {
  std::vector<int64_t> all;
  for (size_t capacity = num_slots_; capacity-- > 1;) {
    if (worth_[capacity] > worth_[capacity - 1])
      all.push_back(static_cast<int64_t>(capacity) * unit_);
  }
  all.push_back(0);
  if (all.size() <= max_count) return all;
  std::vector<int64_t> some;
  for (size_t i = 0; i < max_count; ++i)
    some.push_back(all[i * (all.size() - 1) / (max_count - 1)]);
  return some;
}

}  // namespace ahead::partition
