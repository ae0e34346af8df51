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

/// A callable that is traced when it is called first and runs from graphs afterwards. Its results,
/// gradients and side effects on tensors are those of the callable itself; other side effects
/// happen only when it is traced. Copies share what was compiled. Several threads may call it at
/// once.
template <class F>
class Compiled {
 public:
  explicit Compiled(F f, Options options = {})
      : Compiled(std::move(f), std::make_shared<detail::CompiledCore>(std::move(options))) {}
  /// With compilers of the caller's; see ahead/aot.h.
  Compiled(F f, Options options, detail::Compilers compilers)
      : Compiled(std::move(f),
                 std::make_shared<detail::CompiledCore>(std::move(options), std::move(compilers))) {
  }

  template <class... Args>
  auto operator()(Args&&... args) {
    using Function = detail::TreeFunction<F, std::decay_t<Args>...>;
    using Result = typename Function::Result;
    using Returned = decltype(detail::call(f_, std::forward<Args>(args)...));
    if (detail::is_tracing())
      return static_cast<Returned>(run_eagerly(std::forward<Args>(args)...));
    Function function(f_, args...);
    const auto prepared = core_->prepare(function.inputs(), std::ref(function), [&function] {
      return std::make_shared<const Result>(function.result());
    });
    if (prepared.entry == nullptr) {
      if (prepared.doubtful == nullptr)
        return static_cast<Returned>(run_eagerly(std::forward<Args>(args)...));
      return static_cast<Returned>(run_doubtful(prepared, std::forward<Args>(args)...));
    }
    const std::vector<at::Tensor> results = core_->run(*prepared.entry, function.inputs().leaves);
    if constexpr (!std::is_void_v<Returned>) {
      const auto& prototype = *static_cast<const Result*>(detail::prototype_of(*prepared.entry));
      return static_cast<Returned>(ahead::unflatten(prototype, results));
    }
  }

  /// What happened so far.
  CompileStats stats() const { return core_->stats(); }
  /// The program of every stage of every compilation that is still in use, in order.
  std::vector<Program> programs() const { return core_->programs(); }
  /// Whether this call would run from a graph, and if not, why, in words.
  template <class... Args>
  std::string explain(const Args&... args) {
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

  template <class... Args>
  decltype(auto) run_eagerly(Args&&... args) {
    return detail::call(f_, std::forward<Args>(args)...);
  }

  template <class... Args>
  decltype(auto) run_doubtful(const detail::Prepared& prepared, Args&&... args) {
    using Returned = decltype(run_eagerly(std::forward<Args>(args)...));
    if constexpr (std::is_void_v<Returned>) {
      run_eagerly(std::forward<Args>(args)...);
      core_->keep_eager(prepared);
    } else {
      decltype(auto) result = run_eagerly(std::forward<Args>(args)...);
      core_->keep_eager(prepared);
      return static_cast<Returned>(std::forward<Returned>(result));
    }
  }

  F f_;
  std::shared_ptr<detail::CompiledCore> core_;
};

/// Compiles a function, an object with operator(), or a module (a ModuleHolder, or a shared_ptr to
/// it). Arguments and results are trees; see ahead/tree.h.
template <class F>
Compiled<std::decay_t<F>> compile(F&& f, Options options = {}) {
  return Compiled<std::decay_t<F>>(std::forward<F>(f), std::move(options));
}

}  // namespace ahead
