#include "ir/sizes/fitted_graph.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "base/same_bits.h"
#include "ir/sizes/fitting.h"

namespace ahead {
namespace {

using Column = Fitting::Column;

bool is_constant(const Column& column) {
  return std::all_of(column.begin(), column.end(), [&](int64_t each) { return each == column[0]; });
}

/// The value that stands for a number among those of a graph.
int64_t value_of(GraphNumber::Float kind, int64_t size) {
  if (kind == GraphNumber::Float::Value) return bits_of(static_cast<double>(size));
  if (kind == GraphNumber::Float::Reciprocal) return bits_of(1 / static_cast<double>(size));
  return size;
}

/// What a floating-point number is made of; none: nothing that is known.
std::optional<GraphNumber> find_float(const Fitting& integers, const Column& column) {
  using Float = GraphNumber::Float;
  for (const auto& [known, dim] : integers.known()) {
    for (const Float kind : {Float::Value, Float::Reciprocal}) {
      const auto is_it = [&](int64_t bits, int64_t size) { return bits == value_of(kind, size); };
      if (std::equal(column.begin(), column.end(), known.begin(), is_it))
        return GraphNumber{dim, kind};
    }
  }
  return std::nullopt;
}

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
    const std::optional<GraphNumber> found = find_float(integers, column);
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
