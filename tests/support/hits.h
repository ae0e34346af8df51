#pragma once

#include <gtest/gtest.h>

#include <utility>

#include "ahead/ahead.h"

namespace ahead {

/// Compiles a function with its first call, on these arguments, which should be of nobody else's
/// use. Other calls of that kind run from graphs.
template <class F, class... Args>
Compiled<std::decay_t<F>> compiled_by_call(F&& f, Options options, Args&&... args) {
  options.confirm = Confirm::Never;
  auto compiled = compile(std::forward<F>(f), std::move(options));
  compiled(std::forward<Args>(args)...);
  EXPECT_EQ(compiled.stats().observed_calls, 1u);
  return compiled;
}

/// Expects that graphs ran, and that the function itself ran only for the first call of each kind.
template <class F>
void expect_hits(const Compiled<F>& compiled, uint64_t num_kinds = 1) {
  const CompileStats stats = compiled.stats();
  EXPECT_EQ(stats.observed_calls, num_kinds);
  EXPECT_EQ(stats.traces, num_kinds);
  EXPECT_EQ(stats.eager_calls, 0u);
  EXPECT_EQ(stats.value_misses, 0u);
  EXPECT_GT(stats.cache_hits, 0u);
  EXPECT_EQ(stats.calls, stats.observed_calls + stats.cache_hits);
}

/// Expects that no call ran from a graph, and that the function was observed so often before that
/// was clear.
template <class F>
void expect_runs_eagerly(const Compiled<F>& compiled, uint64_t num_observed = 1) {
  const CompileStats stats = compiled.stats();
  EXPECT_EQ(stats.observed_calls, num_observed);
  EXPECT_EQ(stats.cache_hits, 0u);
  EXPECT_GT(stats.eager_calls, 0u);
  EXPECT_EQ(stats.calls, stats.observed_calls + stats.eager_calls);
}

}  // namespace ahead
