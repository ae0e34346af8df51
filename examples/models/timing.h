#pragma once

#include <time.h>

#include <algorithm>
#include <vector>

/// How the examples and the benchmarks take times.
namespace models {

/// Milliseconds since some moment, by one of two clocks: the one on the wall, and the processor
/// time of this thread, which stands still while another program has the processor.
using Clock = double (*)();

template <clockid_t id>
double read_clock() {
  timespec now;
  clock_gettime(id, &now);
  return 1e3 * static_cast<double>(now.tv_sec) + 1e-6 * static_cast<double>(now.tv_nsec);
}
inline constexpr Clock wall_clock = read_clock<CLOCK_MONOTONIC>;
inline constexpr Clock thread_clock = read_clock<CLOCK_THREAD_CPUTIME_ID>;

/// Runs a function once and returns the milliseconds it took.
template <class Function>
double milliseconds(Function&& function, Clock clock = wall_clock) {
  const double start = clock();
  function();
  return clock() - start;
}

/// The middle one of the values, of which there is at least one.
inline double median(std::vector<double> values) {
  auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// Times of two functions that run in turns, so that whatever else the machine does meets both
/// alike.
struct Pairs {
  Clock clock = wall_clock;
  std::vector<double> first = {}, second = {}, ratios = {};

  /// Runs both once. Who goes first changes, for the second finds the caches warm.
  template <class First, class Second>
  void run(First&& one, Second&& two) {
    const bool swapped = ratios.size() % 2 == 1;
    if (swapped) second.push_back(milliseconds(two, clock));
    first.push_back(milliseconds(one, clock));
    if (!swapped) second.push_back(milliseconds(two, clock));
    ratios.push_back(second.back() / first.back());
  }
};

}  // namespace models
