#include <ATen/core/dispatch/Dispatcher.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "support/test_data.h"
#include "trace/eager/departures.h"

/// The table of what a trace does otherwise than LibTorch does it.
namespace {

namespace fs = std::filesystem;
using ahead::tracing::Departure;
using ahead::tracing::departures;

const fs::path& project() {
  static const fs::path path = fs::path(test_data).parent_path();
  return path;
}

std::string read(const fs::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

bool exists(const std::string& name) {
  const size_t dot = name.find('.');
  const std::string overload = dot == std::string::npos ? "" : name.substr(dot + 1);
  return c10::Dispatcher::singleton()
      .findSchema({"aten::" + name.substr(0, dot), overload})
      .has_value();
}

}  // namespace

TEST(Departures, EveryFileOfTheFolderHasARow) {
  std::set<std::string> files, named;
  for (const auto& entry : fs::directory_iterator(project() / "src/trace/eager")) {
    if (entry.path().extension() == ".cpp") files.insert(entry.path().stem().string());
  }
  files.erase("departures");
  for (const Departure& departure : departures()) named.insert(departure.file);
  EXPECT_EQ(named, files);
}

TEST(Departures, OperatorsThatAreNamedExist) {
  for (const Departure& departure : departures()) {
    const bool is_operator =
        departure.subject.find(' ') == std::string::npos && departure.file != "eager_formulas";
    EXPECT_TRUE(!is_operator || exists(departure.subject)) << departure.subject;
  }
}

TEST(Departures, TheDocumentationListsThem) {
  const std::string text = read(project() / "docs/known_differences.md");
  const std::string section = ahead::tracing::departures_section();
  const size_t start = text.find(section.substr(0, section.find('\n')));
  ASSERT_NE(start, std::string::npos);
  EXPECT_EQ(text.substr(start), section) << "docs/known_differences.md has to end with:\n"
                                         << section;
}
