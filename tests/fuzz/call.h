#pragma once

#include <torch/torch.h>

#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

/// How one line of a random program is written once and both run and printed.
namespace ahead::fuzz {

using Tensors = std::vector<at::Tensor>;
using Ints = std::vector<int64_t>;

/// A number in a program: whole or not, wherever an operator takes a scalar or a double.
class Number {
 public:
  Number(int64_t value) : scalar_(value) {}
  Number(double value) : scalar_(value) {}

  operator at::Scalar() const { return scalar_; }
  operator double() const { return scalar_.toDouble(); }
  /// A literal of the same value and type.
  std::string str() const;

 private:
  at::Scalar scalar_;
};

/// What the text of a call may mention, under these names.
struct Arguments {
  Tensors t;              ///< tensors
  Ints n;                 ///< single integers
  std::vector<Number> s;  ///< single numbers
  Ints dims;              ///< one list of integers
  at::ScalarType type = at::kFloat;
};

/// What a call gives back: nothing (it was called for its effect), or one tensor, or several.
enum class Form : uint8_t { Nothing, One, Tuple, List };

/// An expression over the names in Arguments.
struct Call {
  const char* text;
  Form form;
  Tensors (*run)(Arguments&);
};

namespace detail {

inline Tensors to_list(at::Tensor tensor) {
  return {std::move(tensor)};
}
inline Tensors to_list(Tensors tensors) {
  return tensors;
}
template <class... T>
Tensors to_list(std::tuple<T...> tensors) {
  return std::apply([](auto&&... tensor) { return Tensors{std::move(tensor)...}; },
                    std::move(tensors));
}

template <class Result>
constexpr Form form_of() {
  if constexpr (std::is_same_v<Result, at::Tensor>) return Form::One;
  if constexpr (std::is_same_v<Result, Tensors>) return Form::List;
  return Form::Tuple;
}

template <class Function>
Call value_call(const char* text, Function) {
  using Result = std::invoke_result_t<Function, Arguments&>;
  return {text, form_of<Result>(),
          [](Arguments& arguments) { return to_list(Function{}(arguments)); }};
}

template <class Function>
Call effect_call(const char* text, Function) {
  return {text, Form::Nothing, [](Arguments& arguments) {
            Function{}(arguments);
            return Tensors{};
          }};
}

}  // namespace detail

#define FUZZ_FUNCTION(...)                                    \
  [](::ahead::fuzz::Arguments& arguments) {                   \
    [[maybe_unused]] auto& [t, n, s, dims, type] = arguments; \
    return __VA_ARGS__;                                       \
  }

/// A call whose results become variables.
#define FUZZ_VALUE(...) ::ahead::fuzz::detail::value_call(#__VA_ARGS__, FUZZ_FUNCTION(__VA_ARGS__))

/// A call that is made for what it does to its operands.
#define FUZZ_EFFECT(...) \
  ::ahead::fuzz::detail::effect_call(#__VA_ARGS__, FUZZ_FUNCTION(__VA_ARGS__))

}  // namespace ahead::fuzz
