#pragma once

#include <ATen/Parallel.h>
#include <benchmark/benchmark.h>

#include <functional>

#include "models/timing.h"

using Step = std::function<void()>;

/// Runs an eager step and the same step by Ahead in turns, and reports the medians of both and of
/// the ratios of pairs. A step may be so short that one sample has many. Of one thread its
/// processor time counts, of several the time on the wall.
inline void compare(benchmark::State& state, const Step& eager, const Step& ours, int steps = 100,
                    int threads = 1) {
  at::set_num_threads(threads);
  const auto many = [steps](const Step& step) {
    return [&step, steps] {
      for (int i = 0; i < steps; ++i) step();
    };
  };
  many(eager)();
  many(ours)();
  models::Pairs pairs{threads == 1 ? models::thread_clock : models::wall_clock};
  for (auto _ : state) {
    pairs.run(many(eager), many(ours));
    state.SetIterationTime((pairs.first.back() + pairs.second.back()) * 1e-3);
  }
  state.counters["eager_ms"] = models::median(pairs.first) / steps;
  state.counters["ahead_ms"] = models::median(pairs.second) / steps;
  state.counters["ratio"] = models::median(pairs.ratios);
}
