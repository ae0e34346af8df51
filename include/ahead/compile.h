#pragma once

#include <memory>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "ahead/detail/compiled_core.h"
#include "ahead/detail/tree_function.h"
#include "ahead/export.h"
#include "ahead/options.h"

namespace ahead {

/// A callable that is observed when it is called first and runs from graphs afterwards. Its
/// results, gradients and side effects on tensors are those of the callable itself; other side
/// effects happen only in calls that run it. Copies share what was compiled. Several threads may
/// call it at once.
template <class F>
class Compiled {
 public:
  explicit Compiled(F f, Options options = {})
      : Compiled(std::move(f), std::make_shared<detail::CompiledCore>(std::move(options))) {}
  /// With compilers of the caller's; see ahead/aot.h. The callable itself is traced.
  Compiled(F f, Options options, detail::Compilers compilers)
      : Compiled(std::move(f),
                 std::make_shared<detail::CompiledCore>(std::move(options), std::move(compilers))) {
  }

  template <class... Args>
  auto operator()(Args&&... args) const {
    using Function = detail::TreeFunction<F, std::decay_t<Args>...>;
    using Result = typename Function::Result;
    using Returned = decltype(detail::call(f_, std::forward<Args>(args)...));
    if (detail::is_inlined())
      return static_cast<Returned>(run_eagerly(std::forward<Args>(args)...));
    Function function(f_, args...);
    const detail::Served served = serve(function, std::forward<Args>(args)...);
    if (served.observation != nullptr)
      return static_cast<Returned>(
          observe(*served.observation, function, std::forward<Args>(args)...));
    if (served.entry == nullptr)
      return static_cast<Returned>(run_eagerly(std::forward<Args>(args)...));
    if constexpr (!std::is_void_v<Returned>) {
      const auto& prototype = *static_cast<const Result*>(detail::prototype_of(*served.entry));
      return static_cast<Returned>(ahead::unflatten(prototype, served.results));
    }
  }

  /// What happened so far.
  CompileStats stats() const { return core_->stats(); }
  /// The program of every stage of every compilation that is still in use, in order.
  std::vector<Program> programs() const { return core_->programs(); }
  /// Whether this call would run from a graph, and if not, why, in words.
  template <class... Args>
  std::string explain(const Args&... args) const {
    detail::TreeFunction<F, std::decay_t<Args>...> function(f_, args...);
    return core_->explain(function.inputs());
  }
  /// Forgets everything that was compiled.
  void reset() { core_->reset(); }

 private:
  Compiled(F f, std::shared_ptr<detail::CompiledCore> core)
      : f_(std::move(f)), core_(std::move(core)) {
    if constexpr (requires { detail::watched_module(f_); }) {
      core_->watch(detail::watched_module(f_));
    }
  }

  template <class Function, class... Args>
  detail::Served serve(Function& function, Args&&... args) const {
    if constexpr (Function::template can_give_away<Args...>()) {
      const auto give_away = [&]() -> std::vector<at::Tensor>& {
        return function.template give_away<Args...>(args...);
      };
      if (!core_->traces_function())
        return core_->serve(function.inputs(), detail::host_parts(f_), give_away);
    }
    if (!core_->traces_function()) return core_->serve(function.inputs(), detail::host_parts(f_));
    return core_->serve_traced(function.inputs(), std::ref(function),
                               [&function] { return function.prototype(); });
  }

  template <class... Args>
  decltype(auto) run_eagerly(Args&&... args) const {
    return detail::call(f_, std::forward<Args>(args)...);
  }

  /// Runs the callable itself: this is the call. What was seen of it may become a program.
  template <class Function, class... Args>
  decltype(auto) observe(detail::Observation& observation, Function& function,
                         Args&&... args) const {
    using Returned = decltype(run_eagerly(std::forward<Args>(args)...));
    const auto finish = [&](const typename Function::Result& result) {
      const FlatTree outputs = function.keep(result);
      core_->finish(observation,
                    {.outputs = outputs,
                     .is_reference = std::is_reference_v<Returned>,
                     .keeps_arguments = function.template keeps_arguments<Args...>(args...)},
                    [&function] { return function.prototype(); });
    };
    if constexpr (std::is_void_v<Returned>) {
      run_eagerly(std::forward<Args>(args)...);
      finish({});
    } else {
      decltype(auto) result = run_eagerly(std::forward<Args>(args)...);
      finish(result);
      return static_cast<Returned>(std::forward<Returned>(result));
    }
  }

  /// A callable may change itself when it is called, as in a std::function.
  mutable F f_;
  std::shared_ptr<detail::CompiledCore> core_;
};

/// Compiles a function, an object with operator(), or a module (a ModuleHolder, or a shared_ptr to
/// it). Arguments and results are trees; see ahead/tree.h.
template <class F>
Compiled<std::decay_t<F>> compile(F&& f, Options options = {}) {
  return Compiled<std::decay_t<F>>(std::forward<F>(f), std::move(options));
}

}  // namespace ahead
