#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "ahead/detail/callable.h"
#include "ahead/export.h"
#include "ahead/tree.h"

namespace ahead::detail {

/// A defined tensor without data, to stand where a tensor of a tree was. Making it is not traced.
AHEAD_API const at::Tensor& placeholder();

/// Throws Unsupported if a call left other arguments than it was given, which a graph cannot tell.
AHEAD_API void check_arguments_kept(const FlatTree& before, const FlatTree& after);

/// One call of a callable over trees, seen as a function over flat lists of tensors.
template <class F, class... Args>
class TreeFunction {
  using Indices = std::index_sequence_for<Args...>;
  template <size_t i>
  using Parameter = typename ParameterAt<i, KnownParameters<F>>::type;

  template <size_t... i>
  static std::tuple<typename HeldType<Parameter<i>, Args>::type...> hold(std::index_sequence<i...>,
                                                                         const Args&... args) {
    return {static_cast<typename HeldType<Parameter<i>, Args>::type>(args)...};
  }

 public:
  using Arguments = decltype(hold(Indices(), std::declval<const Args&>()...));

 private:
  template <size_t... i>
  static decltype(auto) apply(F& f, Arguments& arguments, std::index_sequence<i...>) {
    using Held = Arguments;
    static_assert(Callable<F, PassedType<Parameter<i>, std::tuple_element_t<i, Held>>...>,
                  "The function or module cannot be called with these arguments.");
    [[maybe_unused]] auto pass =
        [&]<size_t k>() -> PassedType<Parameter<k>, std::tuple_element_t<k, Held>> {
      return std::get<k>(arguments);
    };
    return detail::call(f, pass.template operator()<i>()...);
  }

  using Returned = decltype(apply(std::declval<F&>(), std::declval<Arguments&>(), Indices()));

 public:
  /// What the callable returns; an empty tuple for void.
  using Result = std::conditional_t<std::is_void_v<Returned>, std::tuple<>, std::decay_t<Returned>>;

  explicit TreeFunction(F& f, const Args&... args)
      : f_(f), arguments_(hold(Indices(), args...)), inputs_(ahead::flatten(arguments_)) {}

  /// The arguments.
  const FlatTree& inputs() const { return inputs_; }

  /// Calls the callable with its arguments, but other tensors in them. Returns the tensors of the
  /// result.
  std::vector<at::Tensor> operator()(const std::vector<at::Tensor>& leaves) {
    Arguments arguments = ahead::unflatten(arguments_, leaves);
    FlatTree outputs;
    if constexpr (std::is_void_v<Returned>) {
      apply(f_, arguments, Indices());
      outputs = keep(Result());
    } else {
      outputs = keep(apply(f_, arguments, Indices()));
    }
    check_arguments_kept({leaves, inputs_.spec}, ahead::flatten(arguments));
    outputs_ = std::move(outputs.spec);
    return std::move(outputs.leaves);
  }

  /// The structure of the last result.
  const TreeSpec& outputs() const { return outputs_; }
  /// The last result with placeholders for its tensors: the prototype to unflatten other outputs
  /// with.
  const Result& result() const { return *result_; }

 private:
  FlatTree keep(const Result& result) {
    FlatTree outputs = ahead::flatten(result);
    result_.emplace(
        ahead::unflatten(result, std::vector<at::Tensor>(outputs.leaves.size(), placeholder())));
    return outputs;
  }

  F& f_;
  const Arguments arguments_;
  const FlatTree inputs_;
  TreeSpec outputs_;
  std::optional<Result> result_;
};

template <class F, class... Args>
TreeFunction(F&, const Args&...) -> TreeFunction<F, Args...>;

}  // namespace ahead::detail
