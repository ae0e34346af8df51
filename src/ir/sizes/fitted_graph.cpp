#include "ir/sizes/fitted_graph.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "base/same_bits.h"

namespace ahead {
namespace {

/// The values of one number in all samples.
using Column = std::vector<int64_t>;

/// So many symbols are tried as factors of a product.
constexpr size_t most_factors = 8;
/// `k*s + c` fits any two values.
constexpr size_t least_for_a_sum = 3;

bool is_constant(const Column& column) {
  return std::all_of(column.begin(), column.end(), [&](int64_t each) { return each == column[0]; });
}

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

/// The value that stands for a number among those of a graph.
int64_t value_of(GraphNumber::Float kind, int64_t size) {
  if (kind == GraphNumber::Float::Value) return bits_of(static_cast<double>(size));
  if (kind == GraphNumber::Float::Reciprocal) return bits_of(1 / static_cast<double>(size));
  return size;
}

/// Finds expressions for columns, in the order in which they are given.
class Fitting {
 public:
  struct Symbol {
    Column column;
    Dim dim;
  };

  /// The expression for an integer; none: it has to be a symbol of its own.
  std::optional<Dim> find(const Column& column) const {
    if (const auto equal = find_equal(column)) return equal;
    if (const auto found = find_product(column, {Column(column.size(), 1), 1}, 0, 3)) return found;
    return num_distinct(column) < least_for_a_sum ? std::nullopt : find_sum(column);
  }
  /// The same for an input's size, which is what it is: only an equal one stands for it.
  std::optional<Dim> find_equal(const Column& column) const {
    const auto known = known_.find(column);
    return known == known_.end() ? std::nullopt : std::optional(known->second);
  }
  /// What a floating-point number is made of; none: nothing that is known.
  std::optional<GraphNumber> find_float(const Column& column) const {
    using Float = GraphNumber::Float;
    for (const auto& [known, dim] : known_) {
      for (const Float kind : {Float::Value, Float::Reciprocal}) {
        const auto is_it = [&](int64_t bits, int64_t size) { return bits == value_of(kind, size); };
        if (std::equal(column.begin(), column.end(), known.begin(), is_it))
          return GraphNumber{dim, kind};
      }
    }
    return std::nullopt;
  }
  void note(const Column& column, Dim dim) { known_.emplace(column, dim); }
  void add_symbol(const Column& column, Dim dim) {
    note(column, dim);
    symbols_.push_back({column, dim});
  }

 private:
  /// A multiple of `before` times up to `depth` symbols from `first` on.
  std::optional<Dim> find_product(const Column& column, const Symbol& before, size_t first,
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

  std::optional<Dim> find_sum(const Column& column) const {
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

  std::map<Column, Dim> known_;
  std::vector<Symbol> symbols_;
};

Column column_at(const std::vector<GraphNumbers>& samples, size_t position) {
  Column column;
  column.reserve(samples.size());
  for (const GraphNumbers& sample : samples) column.push_back(sample.values[position]);
  return column;
}

}  // namespace

FittedGraph::FittedGraph(const Graph& example, const std::vector<GraphNumbers>& samples) {
  using Float = GraphNumber::Float;
  const GraphNumbers of_example = numbers_of(example);
  const size_t count = of_example.values.size();
  std::vector<GraphNumber> numbers(count);
  expected_.resize(count);
  Fitting integers;
  std::map<Column, GraphNumber> floats;
  std::map<std::pair<std::string, Float>, int32_t> places;  // among expressions_
  const auto new_symbol = [&](size_t position) {
    if (of_example.is_argument[position]) unexplained_.push_back(symbols_.size());
    symbols_.push_back(static_cast<uint32_t>(position));
    return Dim::symbol(static_cast<uint32_t>(symbols_.size() - 1));
  };
  const auto fit_float = [&](const Column& column, size_t position) {
    const auto known = floats.find(column);
    if (known != floats.end()) return known->second;
    const std::optional<GraphNumber> found = integers.find_float(column);
    const GraphNumber number = found ? *found : GraphNumber{new_symbol(position), Float::Bits};
    return floats.emplace(column, number).first->second;
  };
  const auto fit_integer = [&](const Column& column, size_t position) {
    const std::optional<Dim> found =
        of_example.is_input_size[position] ? integers.find_equal(column) : integers.find(column);
    const Dim dim = found ? *found : new_symbol(position);
    found ? integers.note(column, dim) : integers.add_symbol(column, dim);
    return GraphNumber{dim};
  };
  for (size_t i = 0; i < count; ++i) {
    const Column column = column_at(samples, i);
    if (is_constant(column)) {
      expected_[i].fixed = column[0];
      if (!of_example.is_float[i]) numbers[i].dim = column[0];
      continue;
    }
    numbers[i] = of_example.is_float[i] ? fit_float(column, i) : fit_integer(column, i);
    const auto place = places.emplace(std::make_pair(numbers[i].dim.str(), numbers[i].as_float),
                                      static_cast<int32_t>(expressions_.size()));
    if (place.second) expressions_.push_back(numbers[i]);
    expected_[i].expression = place.first->second;
  }
  std::vector<int64_t> sizes;
  for (const uint32_t symbol : symbols_) sizes.push_back(of_example.values[symbol]);
  graph_ = with_numbers(example, numbers, sizes);
}

std::optional<std::vector<int64_t>> FittedGraph::sizes_for(
    const std::vector<int64_t>& numbers) const {
  std::vector<int64_t> sizes;
  for (const uint32_t symbol : symbols_) sizes.push_back(numbers[symbol]);
  std::vector<int64_t> values;
  for (const GraphNumber& expression : expressions_) {
    const std::optional<int64_t> value = expression.dim.expression().evaluate(sizes);
    if (!value) return std::nullopt;
    values.push_back(value_of(expression.as_float, *value));
  }
  for (size_t i = 0; i < expected_.size(); ++i) {
    const Expected& expected = expected_[i];
    const int64_t value =
        expected.expression < 0 ? expected.fixed : values[static_cast<size_t>(expected.expression)];
    if (numbers[i] != value) return std::nullopt;
  }
  return sizes;
}

}  // namespace ahead
