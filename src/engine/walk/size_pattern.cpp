#include "engine/walk/size_pattern.h"

#include <algorithm>
#include <limits>
#include <map>
#include <tuple>
#include <unordered_map>

namespace ahead::engine {

SizePattern SizePattern::multiples_of(const std::vector<int64_t>& changing,
                                      std::vector<int64_t> sizes,
                                      const std::vector<bool>& are_shared) {
  SizePattern pattern(std::move(sizes));
  pattern.was_all_ = true;
  pattern.symbols_.resize(pattern.sizes_.size(), kFixed);
  std::unordered_map<int64_t, int32_t> shared;
  for (size_t i = 0; i < pattern.sizes_.size(); ++i) {
    const int64_t size = pattern.sizes_[i];
    const auto divides = [&](int64_t each) { return size % each == 0; };
    if (size == 0 || size == 1 || std::none_of(changing.begin(), changing.end(), divides)) continue;
    const auto next = static_cast<int32_t>(pattern.before_.size());
    pattern.symbols_[i] = are_shared[i] ? shared.try_emplace(size, next).first->second : next;
    if (pattern.symbols_[i] == next) pattern.before_.push_back(size);
  }
  if (pattern.before_.empty()) pattern.symbols_.clear();
  return pattern;
}

SizePattern SizePattern::given_up(const std::vector<int64_t>& sizes) const {
  return SizePattern(sizes, /*may_widen=*/was_all_);
}

SizePattern SizePattern::for_only(const std::vector<int64_t>& sizes) const {
  SizePattern only(sizes);
  only.general_ = std::make_shared<const SizePattern>(*this);
  return only;
}

SizePattern SizePattern::widened(const std::vector<int64_t>& sizes,
                                 const std::vector<bool>& are_dimensions) const {
  if (general_ != nullptr) return general_->widened(sizes, are_dimensions);
  SizePattern wider(sizes, may_widen_);
  if (!may_widen_) return wider;
  wider.was_all_ = was_all_;
  std::map<std::tuple<int32_t, int64_t, int64_t>, int32_t> numbers;
  wider.symbols_.resize(sizes.size(), kFixed);
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (symbol(i) == kFixed && sizes[i] == sizes_[i]) continue;
    // Most decisions are about 0 and 1: what is made for these says nothing about others.
    if (are_dimensions[i] && (sizes[i] == 0 || sizes[i] == 1)) return for_only(sizes);
    const auto next = static_cast<int32_t>(numbers.size());
    const auto [number, is_new] = numbers.try_emplace({symbol(i), sizes_[i], sizes[i]}, next);
    if (is_new) wider.before_.push_back(sizes_[i]);
    wider.symbols_[i] = number->second;
  }
  return wider;
}

std::optional<std::vector<int64_t>> SizePattern::match(const std::vector<int64_t>& sizes) const {
  if (is_fixed()) {
    if (sizes != sizes_) return std::nullopt;
    return std::vector<int64_t>();
  }
  if (sizes.size() != sizes_.size()) return std::nullopt;
  constexpr int64_t unknown = std::numeric_limits<int64_t>::min();
  std::vector<int64_t> values(before_.size(), unknown);
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (symbols_[i] == kFixed) {
      if (sizes[i] != sizes_[i]) return std::nullopt;
      continue;
    }
    int64_t& value = values[static_cast<size_t>(symbols_[i])];
    if (value == unknown) value = sizes[i];
    if (value != sizes[i]) return std::nullopt;
  }
  return values;
}

}  // namespace ahead::engine
