#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>

#include "fuzz/check.h"
#include "fuzz/generator.h"

namespace ahead::fuzz {

/// What a campaign does with programs.
struct Mode {
  Dialect dialect;
  std::function<Verdict(const Program&)> check;
};

/// Traces programs and interprets their graphs.
Mode traced_mode();
/// Compiles programs and calls them.
Mode compiled_mode();
/// The same with the native backend.
Mode native_mode();
/// The same with effects, and with backwards that write.
Mode effects_mode();
/// Compiles programs and calls each with many sizes.
Mode sizes_mode();
/// The same, and captures their backwards.
Mode captured_sizes_mode();
/// Programs with wrapper tensors among the inputs; and such, called with many sizes.
Mode wrappers_mode();
Mode sized_wrappers_mode();
/// Runs programs eagerly and their backwards with compiled autograd.
Mode engine_mode();
/// The same with effects, and with backwards that write.
Mode engine_effects_mode();

/// Checks one random program after the other and keeps count.
class Campaign {
 public:
  explicit Campaign(Mode mode) : mode_(std::move(mode)) {}

  /// Checks the program of this seed. A program that differs is shrunk, and reported as a failure
  /// of the running test unless one with the same operations was before.
  void run(uint64_t seed);

  /// Why the program of this seed is refused, and the smallest one that is refused for the same
  /// reason; empty if it is not.
  std::string smallest_refused(uint64_t seed) const;

  uint64_t programs() const { return programs_; }
  uint64_t differing() const { return differing_; }
  double unsupported_share() const;
  /// One line with the counts so far.
  std::string progress() const;
  /// The counts and, by frequency, why programs were unsupported, with a seed for each reason.
  std::string summary() const;

 private:
  /// Why programs were unsupported.
  struct Reason {
    uint64_t count, first_seed;
  };

  /// What came of it; an exception that escapes the check is a difference.
  Verdict check(const Program& program) const;
  void report(const Program& program, const Verdict& verdict);

  const Mode mode_;
  uint64_t programs_ = 0, both_throw_ = 0, unsupported_ = 0, differing_ = 0;
  std::map<std::string, Reason> reasons_;
  std::set<std::string> reported_;
};

/// If the process crashes, prints the seed and the program it was at.
void print_seed_on_crash();

}  // namespace ahead::fuzz
