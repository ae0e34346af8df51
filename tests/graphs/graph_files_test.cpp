#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "ahead/ahead.h"
#include "support/test_data.h"

/// Each file `<pass>/<case>.txt` is a test of its own: the text of a graph, a line `---- 3
/// changes`, and the text that the pass makes of it, or `---- unchanged` and nothing more. With
/// AHEAD_REGENERATE=1 the tests write what the passes make into the files instead.
namespace ahead {
namespace graph_files_test {

namespace fs = std::filesystem;

const std::string separator = "----";

struct GraphFile {
  fs::path path;

  std::string pass() const { return path.parent_path().filename().string(); }
  std::string name() const { return pass() + "_" + path.stem().string(); }
};

void PrintTo(const GraphFile& file, std::ostream* out) {
  *out << file.path.string();
}

std::vector<GraphFile> graph_files() {
  std::vector<GraphFile> files;
  for (const auto& entry : fs::recursive_directory_iterator(fs::path(test_data) / "graphs")) {
    if (entry.path().extension() == ".txt") files.push_back({entry.path()});
  }
  std::sort(files.begin(), files.end(),
            [](const GraphFile& a, const GraphFile& b) { return a.path < b.path; });
  return files;
}

bool is_regenerating() {
  const char* value = std::getenv("AHEAD_REGENERATE");
  return value != nullptr && std::string(value) == "1";
}

std::string contents_of(const fs::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// What a file says below the graph that goes in.
std::string outcome(size_t changes, const Graph& after) {
  if (changes == 0) return separator + " unchanged\n";
  return separator + " " + std::to_string(changes) + (changes == 1 ? " change\n" : " changes\n") +
         after.str();
}

class GraphFiles : public testing::TestWithParam<GraphFile> {};

TEST_P(GraphFiles, AreWhatThePassMakes) {
  const std::string text = contents_of(GetParam().path);
  const std::string before = text.substr(0, text.find(separator));
  Graph graph = Graph::parse(before);
  graph.verify();
  const std::string unchanged = graph.str();
  const size_t changes = passes::run_pass(GetParam().pass(), graph);
  graph.verify();
  EXPECT_EQ(graph.str() == unchanged, changes == 0);

  const std::string actual = before + outcome(changes, graph);
  if (is_regenerating()) {
    std::ofstream(GetParam().path) << actual;
  } else {
    EXPECT_EQ(actual, text);
  }
  EXPECT_EQ(passes::run_pass(GetParam().pass(), graph), 0U) << "a second run changes something";
}

INSTANTIATE_TEST_SUITE_P(Pass, GraphFiles, testing::ValuesIn(graph_files()),
                         [](const auto& info) { return info.param.name(); });

TEST(GraphFileFolders, HaveCasesForEveryPass) {
  const std::vector<GraphFile> files = graph_files();
  for (const passes::Pass& pass : passes::all()) {
    EXPECT_TRUE(std::any_of(files.begin(), files.end(), [&](const GraphFile& file) {
      return file.pass() == pass.name;
    })) << pass.name;
  }
}

}  // namespace graph_files_test
}  // namespace ahead
