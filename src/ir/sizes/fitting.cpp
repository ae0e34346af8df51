#include "ir/sizes/fitting.h"

#include <algorithm>

namespace ahead {
namespace {

using Column = Fitting::Column;

/// So many symbols are tried as factors of a product.
constexpr size_t most_factors = 8;
/// `k*s + c` fits any two values.
constexpr size_t least_for_a_sum = 3;

size_t num_distinct(Column column) {
  std::sort(column.begin(), column.end());
  return static_cast<size_t>(std::unique(column.begin(), column.end()) - column.begin());
}

/// The factor by which all values of one column are multiples of the other's.
std::optional<int64_t> common_factor(const Column& multiples, const Column& of) {
  if (of[0] == 0) return std::nullopt;
  const int64_t factor = multiples[0] / of[0];
  for (size_t i = 0; i < of.size(); ++i) {
    if (of[i] * factor != multiples[i]) return std::nullopt;
  }
  return factor;
}

Column product(const Column& a, const Column& b) {
  Column values(a.size());
  for (size_t i = 0; i < a.size(); ++i) values[i] = a[i] * b[i];
  return values;
}

}  // namespace

std::optional<Dim> Fitting::find(const Column& column) const {
  if (const auto equal = find_equal(column)) return equal;
  if (const auto found = find_product(column, {Column(column.size(), 1), 1}, 0, 3)) return found;
  return num_distinct(column) < least_for_a_sum ? std::nullopt : find_sum(column);
}

std::optional<Dim> Fitting::find_equal(const Column& column) const {
  const auto known = known_.find(column);
  return known == known_.end() ? std::nullopt : std::optional(known->second);
}

void Fitting::add_symbol(const Column& column, Dim dim) {
  note(column, dim);
  symbols_.push_back({column, dim});
}

/// A multiple of `before` times up to `depth` symbols from `first` on.
std::optional<Dim> Fitting::find_product(const Column& column, const Symbol& before, size_t first,
                                         int depth) const {
  if (depth == 0) return std::nullopt;
  const size_t count = std::min(symbols_.size(), most_factors);
  for (size_t i = first; i < count; ++i) {
    const Symbol now{product(before.column, symbols_[i].column), before.dim * symbols_[i].dim};
    if (const auto factor = common_factor(column, now.column)) return now.dim * Dim(*factor);
  }
  for (size_t i = first; i < count; ++i) {
    const Symbol now{product(before.column, symbols_[i].column), before.dim * symbols_[i].dim};
    if (const auto found = find_product(column, now, i, depth - 1)) return found;
  }
  return std::nullopt;
}

std::optional<Dim> Fitting::find_sum(const Column& column) const {
  for (size_t i = 0; i < std::min(symbols_.size(), most_factors); ++i) {
    const Column& symbol = symbols_[i].column;
    size_t other = 1;
    while (other < symbol.size() && symbol[other] == symbol[0]) ++other;
    if (other == symbol.size()) continue;
    const int64_t run = symbol[other] - symbol[0], rise = column[other] - column[0];
    if (rise == 0 || rise % run != 0) continue;
    const int64_t slope = rise / run, constant = column[0] - slope * symbol[0];
    bool fits = true;
    for (size_t k = 0; k < column.size(); ++k)
      fits = fits && column[k] == slope * symbol[k] + constant;
    if (fits) return symbols_[i].dim * Dim(slope) + Dim(constant);
  }
  return std::nullopt;
}

}  // namespace ahead
