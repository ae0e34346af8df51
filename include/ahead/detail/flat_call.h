#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "ahead/detail/tree_function.h"
#include "ahead/executable.h"
#include "ahead/export.h"

namespace ahead::detail {

/// Throws UserError: nothing can be called with so many tensors.
[[noreturn]] AHEAD_API void throw_wrong_number(size_t count);

/// The most tensors of a list that are passed one by one.
inline constexpr size_t max_flat_arguments = 8;

template <class F, size_t... i>
constexpr bool takes_tensors(std::index_sequence<i...>) {
  return PointsToModule<F, decltype((static_cast<void>(i), std::declval<at::Tensor&>()))...>;
}

template <class F, size_t... i>
aot::FlatFunction spread(F& f, const std::vector<at::Tensor>& inputs, std::index_sequence<i...>) {
  auto function =
      std::make_shared<TreeFunction<F, std::decay_t<decltype(inputs[i])>...>>(f, inputs[i]...);
  return [function](const std::vector<at::Tensor>& leaves) { return (*function)(leaves); };
}

template <class F, size_t count = 0>
aot::FlatFunction spread(F& f, const std::vector<at::Tensor>& inputs) {
  if constexpr (takes_tensors<F>(std::make_index_sequence<count>())) {
    if (inputs.size() == count) return spread(f, inputs, std::make_index_sequence<count>());
  }
  if constexpr (count < max_flat_arguments) return spread<F, count + 1>(f, inputs);
  return nullptr;
}

/// A module as a function over a flat list: its forward is called with each tensor of the list, or,
/// if it does not take so many, with the list. Refers to the module.
template <class F>
aot::FlatFunction flat_call(F& f, const std::vector<at::Tensor>& inputs) {
  if (aot::FlatFunction each = spread<F>(f, inputs)) return each;
  if constexpr (PointsToModule<F, std::vector<at::Tensor>&>) {
    auto function = std::make_shared<TreeFunction<F, std::vector<at::Tensor>>>(f, inputs);
    return [function](const std::vector<at::Tensor>& leaves) { return (*function)(leaves); };
  }
  throw_wrong_number(inputs.size());
}

}  // namespace ahead::detail
