#include "compile/epilogue_numbers.h"

namespace ahead::compiling {
namespace {

/// Calls visit(value) for each integer in an argument, which may be changed by that. False: it is
/// no integer, and not known to be the same for all sizes either.
template <class Visit>
bool for_each_integer(c10::IValue& argument, Visit&& visit) {
  if (argument.isNone() || argument.isBool()) return true;
  if (argument.isInt()) {
    argument = visit(argument.toInt());
    return true;
  }
  if (!argument.isIntList()) return false;
  std::vector<int64_t> numbers = argument.toIntVector();
  for (int64_t& number : numbers) number = visit(number);
  argument = std::move(numbers);
  return true;
}

/// Calls number = visit(number) for all of them. False: see numbers_of().
template <class Visit>
bool for_each_number(runtime::Epilogue& epilogue, Visit&& visit) {
  if (!epilogue.reshapes.empty()) return false;
  for (runtime::ViewStep& step : epilogue.views) {
    for (c10::IValue& argument : step.rest) {
      if (!for_each_integer(argument, visit)) return false;
    }
  }
  for (runtime::Epilogue::Write& write : epilogue.writes) {
    if (!write.geometry) continue;
    for (Dim& size : write.geometry->sizes) size = visit(size.fixed());
    for (Dim& stride : write.geometry->strides) stride = visit(stride.fixed());
    write.geometry->offset = visit(write.geometry->offset.fixed());
  }
  return true;
}

}  // namespace

std::optional<std::vector<int64_t>> numbers_of(const runtime::Epilogue& epilogue) {
  runtime::Epilogue copy = epilogue;
  std::vector<int64_t> numbers;
  const bool are_all = for_each_number(copy, [&](int64_t number) {
    numbers.push_back(number);
    return number;
  });
  return are_all ? std::optional(std::move(numbers)) : std::nullopt;
}

runtime::Epilogue with_numbers(runtime::Epilogue epilogue, const std::vector<int64_t>& numbers) {
  size_t next = 0;
  for_each_number(epilogue, [&](int64_t) { return numbers.at(next++); });
  return epilogue;
}

}  // namespace ahead::compiling
