#include <gtest/gtest.h>

#include <chrono>
#include <iostream>
#include <random>

#include "fuzz/campaign.h"
#include "support/fuzzing.h"

namespace ahead::fuzz {
namespace {

using test::number_from_environment;

class Fuzz : public testing::TestWithParam<uint64_t> {
 protected:
  void SetUp() override {
    // One thread, so that sums are made in one order.
    at::set_num_threads(1);
    print_seed_on_crash();
  }

  /// Runs one half of the programs, or of what the environment asks for.
  static void run(Campaign campaign, uint64_t default_programs, double largest_unsupported_share);

 private:
  test::QuietWarnings quiet_;
};

using Clock = std::chrono::steady_clock;

void run_for(Campaign& campaign, std::chrono::seconds duration) {
  std::random_device device;
  const uint64_t first = (static_cast<uint64_t>(device()) << 20) % 1'000'000'000'000;
  const auto start = Clock::now();
  auto next_report = start;
  for (uint64_t i = 0; Clock::now() - start < duration; ++i) {
    campaign.run(first + i);
    if (Clock::now() < next_report) continue;
    std::cout << campaign.progress() << std::endl;
    next_report = Clock::now() + std::chrono::seconds(10);
  }
}

void Fuzz::run(Campaign campaign, uint64_t default_programs, double largest_unsupported_share) {
  const uint64_t part = GetParam(), parts = 2;
  if (const auto seed = number_from_environment("AHEAD_FUZZ_SEED")) {
    if (*seed % parts != part) return;
    campaign.run(*seed);
    std::cout << campaign.smallest_refused(*seed);
  } else if (const auto seconds = number_from_environment("AHEAD_FUZZ_SECONDS")) {
    run_for(campaign, std::chrono::seconds(*seconds / parts));
  } else {
    const uint64_t first = number_from_environment("AHEAD_FUZZ_FIRST").value_or(0);
    const uint64_t count =
        number_from_environment("AHEAD_FUZZ_PROGRAMS").value_or(default_programs);
    for (uint64_t seed = first; seed < first + count; ++seed) {
      if (seed % parts == part) campaign.run(seed);
    }
    // That of a few programs says little.
    if (count >= default_programs) {
      EXPECT_LT(campaign.unsupported_share(), largest_unsupported_share);
    }
  }
  std::cout << campaign.summary();
}

}  // namespace

TEST_P(Fuzz, Programs) {
  run(Campaign(traced_mode()), 4000, 0.10);
}

TEST_P(Fuzz, CompiledPrograms) {
  // Inputs often share memory here, which is refused where they have no common base.
  run(Campaign(compiled_mode()), 400, 0.13);
}

TEST_P(Fuzz, NativePrograms) {
  // Those that hang on last bits count as well.
  run(Campaign(native_mode()), 60, 0.25);
}

TEST_P(Fuzz, CompiledProgramsWithEffects) {
  run(Campaign(effects_mode()), 200, 0.2);
}

TEST_P(Fuzz, CompiledProgramsOfManySizes) {
  run(Campaign(sizes_mode()), 400, 0.1);
}

TEST_P(Fuzz, CompiledProgramsOfManySizesWithWrappers) {
  run(Campaign(sized_wrappers_mode()), 200, 0.4);
}

TEST_P(Fuzz, CompiledBackwardsOfManySizes) {
  run(Campaign(captured_sizes_mode()), 200, 0.1);
}

TEST_P(Fuzz, CompiledProgramsWithWrappers) {
  run(Campaign(wrappers_mode()), 200, 0.4);
}

TEST_P(Fuzz, CompiledBackwardsWithEffects) {
  run(Campaign(engine_effects_mode()), 1000, 0.01);
}

TEST_P(Fuzz, CompiledBackwards) {
  run(Campaign(engine_mode()), 2000, 0.01);
}

/// Programs that once differed, as long as the generator makes the same of their seeds.
TEST(FuzzAgain, CompiledPrograms) {
  Campaign campaign(compiled_mode());
  for (const uint64_t seed :
       {109640, 109991, 116797, 400324, 400684, 500728, 810903, 830717, 832736, 833452, 835468})
    campaign.run(seed);
}

TEST(FuzzAgain, NativePrograms) {
  Campaign campaign(native_mode());
  for (const uint64_t seed : {160, 422, 2093, 2727, 3782, 8123, 9269}) campaign.run(seed);
}

TEST(FuzzAgain, CompiledBackwards) {
  Campaign campaign(engine_mode());
  for (const uint64_t seed : {902088, 905495, 905820}) campaign.run(seed);
}

TEST(FuzzAgain, CompiledBackwardsOfManySizes) {
  Campaign campaign(captured_sizes_mode());
  for (const uint64_t seed : {73010745, 75020860, 75020929}) campaign.run(seed);
}

TEST(FuzzAgain, CompiledProgramsWithWrappers) {
  Campaign campaign(wrappers_mode());
  for (const uint64_t seed : {20102684, 20105224, 20105275, 50003640, 60200957}) campaign.run(seed);
}

TEST(FuzzAgain, CompiledProgramsWithEffects) {
  Campaign campaign(effects_mode());
  for (const uint64_t seed : {20301152, 60100727, 60102556, 60112287, 62002457, 63001652})
    campaign.run(seed);
}

TEST(FuzzAgain, CompiledProgramsOfManySizes) {
  Campaign campaign(sizes_mode());
  for (const uint64_t seed : {50001596UL, 524429362247UL, 638468846660UL}) campaign.run(seed);
}

// Two parts, so that both shards of the tests have work.
INSTANTIATE_TEST_SUITE_P(Half, Fuzz, testing::Values(0, 1));

}  // namespace ahead::fuzz
