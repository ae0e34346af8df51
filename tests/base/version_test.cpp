#include <ahead/version.h>

#include <string>

#include <gtest/gtest.h>

namespace version_test {

TEST(Version, LibraryAndHeadersAgree) {
  EXPECT_EQ(std::string(ahead::version()), std::to_string(AHEAD_VERSION_MAJOR) + "." +
                                               std::to_string(AHEAD_VERSION_MINOR) + "." +
                                               std::to_string(AHEAD_VERSION_PATCH));
}

}  // namespace version_test
