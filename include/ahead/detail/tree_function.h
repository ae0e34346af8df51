#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <memory>
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

/// Whether a call left the arguments that it was given: the same structure and tensors.
AHEAD_API bool are_arguments_kept(const FlatTree& before, const FlatTree& after);
/// Throws Unsupported if it did not, which a graph cannot tell.
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
  /// The last result with placeholders for its tensors: to unflatten other outputs with.
  const Result& result() const { return *result_; }
  /// The same, for somebody who does not know its type.
  std::shared_ptr<const void> prototype() const { return std::make_shared<const Result>(result()); }

  /// Makes a result the last one. Returns its tensors and structure.
  FlatTree keep(const Result& result) {
    FlatTree outputs = ahead::flatten(result);
    result_.emplace(
        ahead::unflatten(result, std::vector<at::Tensor>(outputs.leaves.size(), placeholder())));
    return outputs;
  }

  /// Whether the caller gave one of these arguments away: a tensor, or a list of them, that is an
  /// rvalue.
  template <class... Given>
  static constexpr bool can_give_away() {
    return (is_given_away<Given> || ...);
  }
  /// Lets go of the arguments that the caller gave away, its own and those here. Returns the
  /// tensors of all arguments, the last to hold them.
  template <class... Given>
  std::vector<at::Tensor>& give_away(std::remove_reference_t<Given>&... given) {
    give_away<Given...>(Indices(), given...);
    return inputs_.leaves;
  }

  /// Whether a call that was given these arguments themselves left them as they were. Only what the
  /// caller still has, and the call could change, counts.
  template <class... Given>
  bool keeps_arguments(const std::remove_reference_t<Given>&... given) const {
    return keeps_arguments<Given...>(Indices(), given...);
  }

 private:
  template <class Given>
  static constexpr bool is_given_away =
      std::is_same_v<Given, at::Tensor> || std::is_same_v<Given, std::vector<at::Tensor>>;

  template <class... Given, size_t... i>
  void give_away(std::index_sequence<i...>, std::remove_reference_t<Given>&... given) {
    [[maybe_unused]] const auto let_go = []<class Each, class Held>(Held& own, auto& callers) {
      if constexpr (is_given_away<Each> && std::is_same_v<Held, Each>) {
        own = Each();
        callers = Each();
      }
    };
    (let_go.template operator()<Given>(std::get<i>(arguments_), given), ...);
  }

  template <class... Given, size_t... i>
  bool keeps_arguments(std::index_sequence<i...>,
                       const std::remove_reference_t<Given>&... given) const {
    return (keeps_argument<Given>(std::get<i>(arguments_), given) && ...);
  }
  template <class Given, class Held>
  static bool keeps_argument(const Held& before, const std::remove_reference_t<Given>& given) {
    constexpr bool can_change =
        std::is_lvalue_reference_v<Given> && !std::is_const_v<std::remove_reference_t<Given>>;
    if constexpr (can_change)
      return are_arguments_kept(ahead::flatten(before), ahead::flatten(static_cast<Held>(given)));
    return true;
  }

  F& f_;
  Arguments arguments_;
  FlatTree inputs_;
  TreeSpec outputs_;
  std::optional<Result> result_;
};

template <class F, class... Args>
TreeFunction(F&, const Args&...) -> TreeFunction<F, Args...>;

}  // namespace ahead::detail
