#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <iostream>

namespace ahead::test {

/// Runs it in a process that has done nothing else, and expects it to return true there: for what
/// happens once in a process, and for what must not crash.
inline void expect_in_new_process(const std::function<bool()>& work) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  const auto run = [&] {
    try {
      return work() ? 0 : 1;
    } catch (const std::exception& error) {
      std::cerr << error.what() << "\n";
      return 2;
    }
  };
  EXPECT_EXIT(std::exit(run()), ::testing::ExitedWithCode(0), "");
}

}  // namespace ahead::test
