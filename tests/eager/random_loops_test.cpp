#include "eager/random_loops.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <iostream>

#include "support/fuzzing.h"

/// Random training loops with host state show the same eagerly, compiled, and compiled with every
/// call observed. AHEAD_FUZZ_PROGRAMS of them from AHEAD_FUZZ_FIRST on, or AHEAD_FUZZ_SEED alone.
namespace ahead::test {
namespace random_loops_test {

constexpr uint64_t default_programs = 1500;
constexpr uint64_t most_shown = 20;

std::string current_program;

void on_crash(int signal) {
  std::signal(signal, SIG_DFL);
  if (write(STDERR_FILENO, current_program.data(), current_program.size()) < 0) std::_Exit(1);
  std::raise(signal);
}

/// The smallest program that still differs, found by taking out one thing after the other.
RandomLoop shrunk(RandomLoop loop) {
  for (bool is_smaller = true; is_smaller;) {
    is_smaller = false;
    for (const RandomLoop& less : loop.smaller()) {
      Outcome unused;
      current_program = less.str();
      const std::string found = loop_difference(less, unused);
      if (found.empty() || found.starts_with("eager ends")) continue;
      loop = less;
      is_smaller = true;
      break;
    }
  }
  return loop;
}

TEST(RandomLoops, LikeEager) {
  // One thread, so that sums are made in one order.
  at::set_num_threads(1);
  const QuietWarnings quiet;
  for (int signal : {SIGSEGV, SIGABRT, SIGFPE, SIGBUS}) std::signal(signal, on_crash);
  uint64_t first = number_from_environment("AHEAD_FUZZ_FIRST").value_or(0);
  uint64_t count = number_from_environment("AHEAD_FUZZ_PROGRAMS").value_or(default_programs);
  if (const auto seed = number_from_environment("AHEAD_FUZZ_SEED")) {
    first = *seed;
    count = 1;
  }
  Outcome all;
  uint64_t with_hits = 0, failed = 0;
  for (uint64_t seed = first; seed < first + count; ++seed) {
    const RandomLoop loop = make_loop(seed);
    current_program = loop.str();
    Outcome outcome;
    const std::string found = loop_difference(loop, outcome);
    all.add(outcome);
    with_hits += outcome.cache_hits != 0 ? 1 : 0;
    if (found.empty()) continue;
    if (++failed > most_shown) {
      ADD_FAILURE() << "AHEAD_FUZZ_SEED=" << seed << ": " << found;
      continue;
    }
    const RandomLoop least = shrunk(loop);
    Outcome of_least;
    ADD_FAILURE() << found << "\n"
                  << (count == 1 ? loop.str() : "")
                  << "in short: " << loop_difference(least, of_least) << "\n"
                  << least.str();
  }
  std::cout << count << " programs, " << with_hits << " with hits; " << all.str() << "\n";
  for (int signal : {SIGSEGV, SIGABRT, SIGFPE, SIGBUS}) std::signal(signal, SIG_DFL);
  if (count < default_programs) return;
  EXPECT_GT(10 * with_hits, 3 * count);
}

}  // namespace random_loops_test
}  // namespace ahead::test
