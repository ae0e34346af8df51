#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "ahead/compile.h"
#include "ahead/export.h"
#include "ahead/tree.h"

namespace ahead {

/// What bisect() found out about a function.
struct BisectReport {
  /// How many times a kernel ran, forward or backward, and in how many of these it was beyond its
  /// tolerance.
  size_t kernels_checked = 0, kernels_beyond = 0;
  /// The first of these: its name, the graph that it is in, the operators that it computes.
  std::string kernel = {}, graph = {};
  std::vector<std::string> operators = {};
  /// Which of its results is farthest from ATen's, by how much, and how much is tolerated.
  size_t result = 0;
  double difference = 0, tolerance = 0;
  /// A folder with its graph, its source and its arguments; empty: none could be written.
  std::string folder = {};
  /// Why nothing was checked; empty if something was.
  std::string reason = {};

  bool found() const { return kernels_beyond != 0; }
  /// All this, in words.
  AHEAD_API std::string str() const;
};

namespace detail {

/// The search of one bisect().
class AHEAD_API Bisection {
 public:
  /// `change`: what is done to the text of each kernel before it is compiled; for tests.
  explicit Bisection(std::function<void(std::string&)> change = {});
  ~Bisection();
  Bisection(const Bisection&) = delete;
  Bisection& operator=(const Bisection&) = delete;

  /// What the function is to be compiled with.
  Options options() const;
  Compilers compilers() const;
  /// Whether the function has to be called once more, after it did this.
  bool goes_on(const CompileStats& stats) const;
  /// Differentiates the results of a call. No `.grad` changes.
  void differentiate(const std::vector<at::Tensor>& results) const;
  /// `explanation`: what the compiled function says of the call.
  BisectReport report(const std::string& explanation) const;

 private:
  struct State;
  const std::shared_ptr<State> state_;
};

/// bisect() with a search of the caller's.
template <class F, class... Args>
BisectReport bisect_by(const Bisection& search, F&& f, const Args&... args) {
  const Compiled<std::decay_t<F>> compiled(std::forward<F>(f), search.options(),
                                           search.compilers());
  do {
    if constexpr (std::is_void_v<decltype(compiled(args...))>) {
      compiled(args...);
    } else {
      search.differentiate(ahead::flatten(compiled(args...)).leaves);
    }
  } while (search.goes_on(compiled.stats()));
  return search.report(compiled.explain(args...));
}

}  // namespace detail

/// Looks for a kernel of the native backend that is wrong. The function, or module, is called with
/// these arguments until it runs from graphs, and its results are differentiated; in these graphs
/// each group of operators is computed by its kernel and by ATen from the same arguments, and
/// compared; docs/accuracy.md says within which bounds. The first kernel beyond them is named, and
/// what it takes to look at it alone is written to a folder.
template <class F, class... Args>
BisectReport bisect(F&& f, const Args&... args) {
  return detail::bisect_by(detail::Bisection(), std::forward<F>(f), args...);
}

}  // namespace ahead
