#include <gtest/gtest.h>

#include <cstdlib>
#include <optional>

#include "ahead/compiled_autograd.h"

namespace ahead::conformance {
namespace {

/// With AHEAD_TEST_COMPILED_AUTOGRAD set, all backwards of all tests go through compiled autograd.
class CompiledAutogradEnvironment : public testing::Environment {
 public:
  void SetUp() override {
    if (std::getenv("AHEAD_TEST_COMPILED_AUTOGRAD") != nullptr) on_.emplace();
  }
  void TearDown() override {
    if (!on_) return;
    on_.reset();
    const compiled_autograd::Stats stats = compiled_autograd::stats();
    EXPECT_GT(stats.captures, 0u);
    std::cout << "Compiled autograd: " << stats.captures << " captures, " << stats.cache_hits
              << " hits, " << stats.eager_fallbacks << " in the eager engine\n";
  }

 private:
  std::optional<compiled_autograd::Enable> on_;
};

[[maybe_unused]] const auto* const environment =
    testing::AddGlobalTestEnvironment(new CompiledAutogradEnvironment);

}  // namespace
}  // namespace ahead::conformance
