#pragma once

/// What a callable takes and how it is called. A callable is a function, an object with operator(),
/// a module, or a pointer or torch::nn::ModuleHolder to a module; a module is what has a `forward`.

#include <concepts>
#include <functional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

#include "ahead/detail/tree_types.h"

namespace ahead::detail {

template <class F, class... Args>
concept PointsToModule = requires(F& f, Args&&... args) {
  (*f).forward(std::forward<Args>(args)...);
};
template <class F, class... Args>
concept Module = requires(F& f, Args&&... args) {
  f.forward(std::forward<Args>(args)...);
};
template <class F, class... Args>
concept Callable = PointsToModule<F, Args...> || std::invocable<F&, Args...> || Module<F, Args...>;

template <class F, class... Args>
requires Callable<F, Args...>
decltype(auto) call(F& f, Args&&... args) {
  if constexpr (PointsToModule<F, Args...>) {
    return (*f).forward(std::forward<Args>(args)...);
  } else if constexpr (std::invocable<F&, Args...>) {
    return std::invoke(f, std::forward<Args>(args)...);
  } else {
    return f.forward(std::forward<Args>(args)...);
  }
}

template <class...>
struct Types {};

template <class R, class... Parameters>
Types<Parameters...> parameters_of(R (*)(Parameters...));
template <class R, class Class, class... Parameters>
Types<Parameters...> parameters_of(R (Class::*)(Parameters...));
template <class R, class Class, class... Parameters>
Types<Parameters...> parameters_of(R (Class::*)(Parameters...) const);

/// The parameter types of a callable that is neither overloaded nor a template; else none.
template <class F>
auto known_parameters(F& f) {
  if constexpr (requires {
                  detail::parameters_of(&std::remove_reference_t<decltype(*f)>::forward);
                }) {
    return decltype(detail::parameters_of(&std::remove_reference_t<decltype(*f)>::forward))();
  } else if constexpr (requires { detail::parameters_of(f); }) {
    return decltype(detail::parameters_of(f))();
  } else if constexpr (requires { detail::parameters_of(&F::operator()); }) {
    return decltype(detail::parameters_of(&F::operator()))();
  } else if constexpr (requires { detail::parameters_of(&F::forward); }) {
    return decltype(detail::parameters_of(&F::forward))();
  } else {
    return Types<>();
  }
}

template <class F>
using KnownParameters = decltype(detail::known_parameters(std::declval<F&>()));

/// The i-th parameter type; void if it is not known.
template <size_t i, class Parameters>
struct ParameterAt {
  using type = void;
};
template <size_t i, class... Parameters>
requires(i < sizeof...(Parameters)) struct ParameterAt<i, Types<Parameters...>>
    : std::tuple_element<i, std::tuple<Parameters...>> {
};

/// The type that holds an argument for a parameter: the parameter's if that is a tree, else the
/// argument's. String literals are held as strings.
template <class Parameter, class Arg>
struct HeldType {
  using Own = std::decay_t<Arg>;
  using type = std::conditional_t<std::same_as<Own, const char*> || std::same_as<Own, char*>,
                                  std::string, Own>;
};
template <class Parameter, class Arg>
requires is_tree<std::decay_t<Parameter>> &&
    std::is_convertible_v<const Arg&, std::decay_t<Parameter>>
struct HeldType<Parameter, Arg> {
  using type = std::decay_t<Parameter>;
};

/// How a held argument is passed: as an lvalue, or as a copy where the parameter is an rvalue
/// reference.
template <class Parameter, class Held>
using PassedType = std::conditional_t<std::is_rvalue_reference_v<Parameter>, Held, Held&>;

}  // namespace ahead::detail
