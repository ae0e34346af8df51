#include "native/loops/library_functions.h"

#include <ATen/Context.h>
#include <dlfcn.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

namespace ahead::native {
namespace {

struct LibraryFunction {
  Op op;
  const char* name;  ///< behind what stands for the type
};

constexpr LibraryFunction library_functions[] = {
    {Op::Sqrt, "Sqrt"}, {Op::Exp, "Exp"},     {Op::Log, "Ln"},
    {Op::Log2, "Log2"}, {Op::Log10, "Log10"}, {Op::Erf, "Erf"},
    {Op::Tanh, "Tanh"}, {Op::Sin, "Sin"},     {Op::Cos, "Cos"},
};

/// High accuracy, denormal numbers, no errors: as ATen asks.
constexpr long long mode = 0x140102;

/// Numbers of all sizes, with both signs.
template <class Number>
std::vector<Number> samples() {
  std::vector<Number> numbers;
  for (int i = 0; i < 1024; ++i) {
    const auto within = static_cast<Number>(i % 97) / 29 + static_cast<Number>(i) * Number(1e-4);
    numbers.push_back((i % 2 == 0 ? 1 : -1) * within * static_cast<Number>(i % 5 == 0 ? 23 : 1));
  }
  return numbers;
}

/// Whether results are the same for many numbers at once and for each by itself.
template <class Number>
bool is_the_same_everywhere(const char* name) {
  using Function = void (*)(int, const Number*, Number*, long long);
  auto* const function = reinterpret_cast<Function>(::dlsym(RTLD_DEFAULT, name));
  if (function == nullptr) return false;
  const std::vector<Number> numbers = samples<Number>();
  std::vector<Number> together(numbers.size()), alone(numbers.size());
  function(static_cast<int>(numbers.size()), numbers.data(), together.data(), mode);
  for (size_t i = 0; i < numbers.size(); ++i) function(1, &numbers[i], &alone[i], mode);
  const auto are_same = [](Number a, Number b) {
    return (a == b && std::signbit(a) == std::signbit(b)) || (std::isnan(a) && std::isnan(b));
  };
  return std::equal(together.begin(), together.end(), alone.begin(), are_same);
}

/// By operation and type.
std::vector<bool> find_exact() {
  std::vector<bool> exact;
  for (const LibraryFunction& function : library_functions) {
    const std::string name = function.name;
    exact.push_back(at::hasMKL() && is_the_same_everywhere<float>(("vms" + name).c_str()));
    exact.push_back(at::hasMKL() && is_the_same_everywhere<double>(("vmd" + name).c_str()));
  }
  return exact;
}

}  // namespace

bool is_exact_by_library(Op op, Type type) {
  static const auto* exact = new std::vector<bool>(find_exact());
  size_t index = 0;
  for (const LibraryFunction& function : library_functions) {
    if (function.op == op) return is_float(type) && (*exact)[index + (type == Type::F64 ? 1 : 0)];
    index += 2;
  }
  return false;
}

bool is_by_library(Op op) {
  for (const LibraryFunction& function : library_functions)
    if (function.op == op) return true;
  return false;
}

}  // namespace ahead::native
