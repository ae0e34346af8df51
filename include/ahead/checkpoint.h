#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "ahead/detail/tree_function.h"
#include "ahead/export.h"
#include "ahead/graph.h"

namespace ahead {

/// What becomes of an operator's results that the backward needs. Compiled, the partitioner may
/// decide otherwise only about what is preferred; uncompiled, preferred counts as must.
enum class Saving : uint8_t { MustSave, PreferSave, PreferRecompute, MustRecompute };

namespace detail {
/// Returns it. Throws UserError if there is no enumerator of this value.
AHEAD_API Saving checked(Saving saving);
}  // namespace detail

/// Says for each operator what becomes of its results: one answer for all of them, or a function's.
class CheckpointPolicy {
 public:
  CheckpointPolicy(Saving all) : all_(detail::checked(all)) {}
  template <class F>
  requires std::is_invocable_r_v<Saving, F&, const Operator&> CheckpointPolicy(F function)
      : function_(std::move(function)) {}

  /// Nothing is kept but the arguments.
  static CheckpointPolicy recompute_everything() { return Saving::MustRecompute; }
  /// As without a checkpoint.
  static CheckpointPolicy save_everything() { return Saving::MustSave; }

  Saving operator()(const Operator& op) const {
    return function_ ? detail::checked(function_(op)) : all_;
  }
  /// Whether the answer is the same for all operators, and which one it is then.
  bool is_uniform() const { return !function_; }
  Saving all() const { return all_; }

 private:
  Saving all_ = Saving::MustRecompute;
  std::function<Saving(const Operator&)> function_;
};

namespace detail {

/// A call that can be made again with other tensors. It owns the callable and holds none of the
/// tensors it was made with.
using RepeatedCall = std::function<void(const std::vector<at::Tensor>& leaves)>;

/// Whether a checkpoint makes a difference here: in a trace, or where gradients are recorded.
AHEAD_API bool is_checkpointing(const CheckpointPolicy& policy);

/// The time in which a checkpointed function runs. In a trace nodes are tagged; otherwise tensors
/// that autograd saves are let go, and made again by `again` when a backward wants them.
class AHEAD_API CheckpointScope {
 public:
  CheckpointScope(const CheckpointPolicy& policy, const std::vector<at::Tensor>& leaves,
                  RepeatedCall again);
  ~CheckpointScope();
  CheckpointScope(const CheckpointScope&) = delete;
  CheckpointScope& operator=(const CheckpointScope&) = delete;

  /// To be called with the tensors of the result, unless the function threw.
  void finish(const std::vector<at::Tensor>& results);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// The arguments of a call in the types in which a TreeFunction holds them.
template <class Held, class... Args, size_t... i>
Held hold(std::index_sequence<i...>, const Args&... args) {
  return {static_cast<std::tuple_element_t<i, Held>>(args)...};
}

template <class F, class... Held>
RepeatedCall repeated_call(const F& f, const std::tuple<Held...>& arguments) {
  struct Call {
    Call(const F& f, const Held&... held) : callable(f), function(callable, held...) {}
    F callable;
    TreeFunction<F, Held...> function;
  };
  const size_t num_tensors = ahead::flatten(arguments).leaves.size();
  const auto call =
      std::apply([&](const Held&... held) { return std::make_shared<Call>(f, held...); },
                 ahead::unflatten(arguments, std::vector<at::Tensor>(num_tensors, placeholder())));
  return [call](const std::vector<at::Tensor>& leaves) { call->function(leaves); };
}

}  // namespace detail

/// Calls a function and keeps less for its backward than eager would: what the policy does not save
/// is computed again when the backward needs it.
///
/// Results and gradients are those of `f(args...)`, to the bit. The callable is copied and may be
/// called again until the backward is done, so what it refers to must live as long; arguments and
/// result are trees (see ahead/tree.h). The second call sees random numbers, autocast and the
/// contents of written tensors as the first one did. In a trace the operators of the function are
/// tagged for the partitioner, which never runs effectful ones twice, and random ones only where
/// that saves memory, with the numbers of the first run. Calls may be nested; the innermost policy
/// around an operator decides.
template <class F, class... Args>
auto checkpoint(const CheckpointPolicy& policy, F&& f, Args&&... args) {
  using Result = std::decay_t<decltype(detail::call(f, std::forward<Args>(args)...))>;
  if (!detail::is_checkpointing(policy)) {
    return static_cast<Result>(detail::call(f, std::forward<Args>(args)...));
  }
  using Callable = std::decay_t<F>;
  using Held = typename detail::TreeFunction<Callable, std::decay_t<Args>...>::Arguments;
  const auto held = detail::hold<Held>(std::index_sequence_for<Args...>(), args...);
  detail::CheckpointScope scope(policy, ahead::flatten(held).leaves,
                                detail::repeated_call<Callable>(f, held));
  if constexpr (std::is_void_v<Result>) {
    detail::call(f, std::forward<Args>(args)...);
    scope.finish({});
  } else {
    Result result = detail::call(f, std::forward<Args>(args)...);
    scope.finish(ahead::flatten(result).leaves);
    return result;
  }
}

}  // namespace ahead
