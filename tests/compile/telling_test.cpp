#include <ATen/record_function.h>
#include <dirent.h>
#include <gtest/gtest.h>
#include <torch/torch.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <iostream>
#include <sstream>

#include "ahead/ahead.h"
#include "support/eager.h"
#include "support/hits.h"

/// What a compiled function tells of itself.
namespace ahead {
namespace telling_test {

using at::Tensor;

TEST(Prologue, IsARangeForProfilers) {
  auto compiled = compiled_by_call([](const Tensor& x) { return x.sin(); }, {}, at::ones({3}));
  static std::vector<std::string> ranges;
  const auto handle =
      at::addThreadLocalCallback(at::RecordFunctionCallback([](const at::RecordFunction& range) {
                                   ranges.emplace_back(range.name());
                                   return std::unique_ptr<at::ObserverContext>();
                                 }).scopes({at::RecordScope::USER_SCOPE}));
  compiled(at::ones({3}));
  at::removeCallback(handle);
  EXPECT_EQ(ranges, std::vector<std::string>{"ahead.prologue"});
}

TEST(Verbose, PrintsWhatGraphsAreGiven) {
  auto compiled = compiled_by_call([](const Tensor& x, const Tensor& y) { return x * y; },
                                   {.verbose = true}, leaf({3}), at::ones({2, 3}));
  auto silent = compiled_by_call([](const Tensor& x) { return x.sin(); }, {}, leaf({5}));
  std::ostringstream printed;
  std::streambuf* const before = std::clog.rdbuf(printed.rdbuf());
  compiled(leaf({3}), at::ones({2, 3})).sum().backward();
  silent(leaf({5}));
  std::clog.rdbuf(before);
  EXPECT_EQ(printed.str(),
            "[ahead] CompiledFunction is given: f32[3] requires_grad, f32[2, 3]\n"
            "[ahead] CompiledFunctionBackward is given the gradients: f32[2, 3]{0, 0}\n");
}

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  DIR* open = ::opendir(folder.c_str());
  if (open == nullptr) return names;
  while (const dirent* entry = ::readdir(open)) {
    if (entry->d_name[0] != '.') names.emplace_back(entry->d_name);
  }
  ::closedir(open);
  return names;
}

TEST(DumpFolder, HasEveryProgramAsText) {
  const std::string folder = testing::TempDir() + "ahead_dump_" + std::to_string(::getpid()) + "/a";
  auto compiled = compile(
      [](const Tensor& x, Tensor y) {
        y.add_(1);
        return x.sin() * y;
      },
      {.confirm = 0, .dump_folder = folder});
  compiled(leaf({3}), at::ones({3}));
  const std::vector<std::string> compilations = names_in(folder);
  ASSERT_EQ(compilations.size(), 1U);
  const auto read = [&](const std::string& name) {
    const std::string path = folder + "/" + compilations[0] + "/" + name;
    std::ifstream file(path);
    std::string text(std::istreambuf_iterator<char>(file), {});
    std::remove(path.c_str());
    return text;
  };
  const std::vector<Program> programs = compiled.programs();
  for (size_t i = 0; i < programs.size(); ++i) {
    char number[32];
    std::snprintf(number, sizeof(number), "%03zu_", i);
    const std::string text = read(number + programs[i].name + ".graph");
    EXPECT_EQ(Graph::parse(text).hash(), programs[i].graph->hash()) << programs[i].name;
  }
  const std::string meta = read("meta.txt");
  EXPECT_NE(meta.find("input 1: Primal 1 f32[3], version raised by 1\n"), std::string::npos)
      << meta;
  EXPECT_NE(meta.find("result 0: new, requires grad\n"), std::string::npos) << meta;
  EXPECT_NE(read("plan.txt").find("write: input 1"), std::string::npos);
  EXPECT_NE(read("options.txt").find("partitioner: min-cut"), std::string::npos);
  EXPECT_TRUE(names_in(folder + "/" + compilations[0]).empty());
  const std::string parent = folder.substr(0, folder.rfind('/'));
  for (const std::string& made : {folder + "/" + compilations[0], folder, parent})
    EXPECT_EQ(::rmdir(made.c_str()), 0) << made;
}

TEST(DumpFolder, ThatCannotBeWrittenIsAnError) {
  auto compiled =
      compile([](const Tensor& x) { return x.sin(); }, {.confirm = 0, .dump_folder = "/dev/null"});
  EXPECT_THROW(compiled(at::ones({3})), UserError);
}

}  // namespace telling_test
}  // namespace ahead
