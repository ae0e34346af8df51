#include "fuzz/call_numbers.h"

#include <algorithm>

namespace ahead::fuzz {
namespace {

constexpr CallNumbers standing;

bool is_rate(const Number& number) {
  return static_cast<double>(number) == standing.rate;
}

int64_t value_in_call(int64_t value, const CallNumbers& numbers) {
  if (value % standing.batch == 0) return value / standing.batch * numbers.batch;
  if (value % standing.count == 0) return value / standing.count * numbers.count;
  return value;
}

std::string multiple(int64_t factor, const char* name) {
  return factor == 1 ? name : std::to_string(factor) + " * " + name;
}

}  // namespace

Program in_call(const Program& program, const CallNumbers& numbers) {
  Program now = program;
  const auto replace = [&](Ints& integers) {
    for (int64_t& each : integers) each = value_in_call(each, numbers);
  };
  for (Input& input : now.inputs) replace(input.sizes);
  for (Instruction& line : now.body) {
    replace(line.n);
    replace(line.dims);
    for (Number& number : line.s) {
      if (is_rate(number)) number = numbers.rate;
    }
  }
  return now;
}

bool depends_on_call(const std::vector<int64_t>& sizes) {
  return std::any_of(sizes.begin(), sizes.end(), [](int64_t size) {
    return size != 0 && (size % standing.batch == 0 || size % standing.count == 0);
  });
}

std::optional<BatchPlace> batch_place(const Program& program) {
  if (!program.has_call_numbers) return std::nullopt;
  for (size_t i = 0; i < program.inputs.size(); ++i) {
    const Input& input = program.inputs[i];
    const auto found = std::find(input.sizes.begin(), input.sizes.end(), standing.batch);
    if (!input.captured && input.is_own() && found != input.sizes.end())
      return BatchPlace{i, static_cast<size_t>(found - input.sizes.begin())};
  }
  return std::nullopt;
}

std::string name_in_call(int64_t value) {
  if (value != 0 && value % standing.batch == 0) return multiple(value / standing.batch, "batch");
  if (value != 0 && value % standing.count == 0) return multiple(value / standing.count, "count");
  return std::to_string(value);
}

std::string name_in_call(const Number& value) {
  return is_rate(value) ? "rate" : value.str();
}

}  // namespace ahead::fuzz
