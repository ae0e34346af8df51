#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "base/environment.h"
#include "base/files.h"
#include "native/build/cache_folder.h"
#include "native/build/kernel_library.h"
#include "native/build/loader.h"
#include "native/build/process.h"
#include "native/temporary_cache.h"
#include "native/variants.h"

namespace ahead::native::build_test {

using test::EnvironmentVariable;
using test::names_in;

/// A kernel that adds a number to eight others.
KernelSource adding(int number) {
  const std::string name = "add_" + std::to_string(number);
  return {name, with_prelude("extern \"C\" void " + name +
                                 "(float* x) {\n  const Full m;\n"
                                 "  store_f32(x, load_f32(x, m) + " +
                                 std::to_string(number) + ".f, m);\n}\n",
                             8)};
}

KernelSource broken() {
  return {"broken", "extern \"C\" void broken(float* x) { this is no text of a kernel }\n"};
}

/// What a kernel of adding() makes of zeros.
float added_by(KernelAddress kernel) {
  float numbers[8] = {};
  if (kernel != nullptr) reinterpret_cast<void (*)(float*)>(kernel)(numbers);
  return numbers[7];
}

/// A cache of its own for each test.
class Build : public ::testing::Test {
 protected:
  BuildSettings settings() const { return {host_target(), folder_}; }
  std::string libraries() const { return folder_ + "/libraries"; }

  /// Replaces all files with this ending in a part of the cache. New files, since this process may
  /// run the code of the old ones.
  void replace(const std::string& part, const std::string& ending,
               const std::string& contents) const {
    for (const std::string& name : names_in(folder_ + part)) {
      if (name.size() < ending.size() || name.substr(name.size() - ending.size()) != ending)
        continue;
      EXPECT_TRUE(write_file(folder_ + part + "/" + name, contents));
    }
  }

  const test::TemporaryCache cache_;
  const std::string& folder_ = cache_.path();
};

TEST_F(Build, CompilesAndRuns) {
  KernelLibrary library(settings());
  const std::vector<KernelAddress> kernels = library.build({adding(1), adding(2), adding(1)});
  ASSERT_EQ(kernels.size(), 3u);
  EXPECT_EQ(added_by(kernels[0]), 1);
  EXPECT_EQ(added_by(kernels[1]), 2);
  EXPECT_EQ(kernels[2], kernels[0]);
  EXPECT_EQ(library.build({adding(2)})[0], kernels[1]);
  EXPECT_EQ(library.counters().compiled, 2);
  EXPECT_EQ(library.counters().loaded_from_cache, 0);
  EXPECT_TRUE(names_in(folder_ + "/work").empty());
}

TEST_F(Build, KeepsTheSourceBesideTheBinary) {
  KernelLibrary(settings()).build({adding(1)});
  std::string all, text;
  for (const std::string& name : names_in(libraries())) {
    EXPECT_EQ(name.size(), name.find('.') + (name.back() == 'p' ? 4 : 3));
    if (name.back() == 'p' && read_file(libraries() + "/" + name, text)) all += text;
  }
  EXPECT_NE(all.find(adding(1).text), std::string::npos);
  EXPECT_NE(all.find(host_target().version), std::string::npos);
}

TEST_F(Build, FindsKernelsInTheCacheInOtherGroups) {
  KernelLibrary(settings()).build({adding(1), adding(2), adding(3)});
  KernelLibrary later(settings());
  const std::vector<KernelAddress> kernels = later.build({adding(4), adding(3)});
  EXPECT_EQ(added_by(kernels[0]), 4);
  EXPECT_EQ(added_by(kernels[1]), 3);
  EXPECT_EQ(later.counters().compiled, 1);
  EXPECT_EQ(later.counters().loaded_from_cache, 1);
}

TEST_F(Build, CompilesAgainForOtherFlagsAndOtherCompilers) {
  KernelLibrary(settings()).build({adding(1)});
  BuildSettings other_flags = settings();
  other_flags.target.flags.emplace_back("-fno-plt");
  BuildSettings other_version = settings();
  other_version.target.version += " and newer";
  for (const BuildSettings& others : {other_flags, other_version}) {
    KernelLibrary library(others);
    EXPECT_EQ(added_by(library.build({adding(1)})[0]), 1);
    EXPECT_EQ(library.counters().compiled, 1);
  }
}

TEST_F(Build, RebuildsWhatIsDamaged) {
  KernelLibrary(settings()).build({adding(1)});
  const auto expect_rebuilt = [&] {
    KernelLibrary library(settings());
    EXPECT_EQ(added_by(library.build({adding(1)})[0]), 1);
    EXPECT_EQ(library.counters().compiled, 1);
    KernelLibrary later(settings());
    EXPECT_EQ(added_by(later.build({adding(1)})[0]), 1);
    EXPECT_EQ(later.counters().loaded_from_cache, 1);
  };
  replace("/libraries", ".so", "no library");
  expect_rebuilt();
  replace("/libraries", ".so", "");
  expect_rebuilt();
  replace("/kernels", "", "../../elsewhere");
  expect_rebuilt();
  for (const std::string& name : names_in(libraries()))
    ::unlink((libraries() + "/" + name).c_str());
  expect_rebuilt();
}

TEST_F(Build, LoadsWithoutFilesWhereTheyMustNotBeExecuted) {
  BuildSettings in_memory = settings();
  in_memory.load_from_memory = true;
  KernelLibrary(in_memory).build({adding(1)});
  KernelLibrary library(in_memory);
  EXPECT_EQ(added_by(library.build({adding(1)})[0]), 1);
  EXPECT_EQ(added_by(library.build({adding(2)})[0]), 2);
  EXPECT_EQ(library.counters().loaded_from_cache, 1);

  std::string bytes, reason;
  for (const std::string& name : names_in(libraries()))
    if (name.back() == 'o') read_file(libraries() + "/" + name, bytes);
  EXPECT_NE(load_library("/nonexistent/library.so", bytes, reason), nullptr) << reason;
  EXPECT_EQ(load_library("/nonexistent/library.so", "no library", reason), nullptr);
  EXPECT_NE(reason, "");
}

TEST_F(Build, WorksWithoutACache) {
  KernelLibrary library({host_target(), ""});
  EXPECT_EQ(added_by(library.build({adding(1)})[0]), 1);
  EXPECT_TRUE(names_in(folder_).empty());
}

TEST_F(Build, LeavesOutOnlyTheCulprit) {
  KernelLibrary library(settings());
  const std::vector<KernelAddress> kernels =
      library.build({adding(1), broken(), adding(2), adding(3), adding(4)});
  EXPECT_EQ(kernels[1], nullptr);
  EXPECT_EQ(added_by(kernels[0]), 1);
  EXPECT_EQ(added_by(kernels[2]), 2);
  EXPECT_EQ(added_by(kernels[4]), 4);
  EXPECT_EQ(library.counters().failed, 1);
  EXPECT_EQ(library.counters().compiled, 4);
  EXPECT_EQ(names_in(folder_ + "/failed"), std::vector<std::string>{"broken.cpp"});
  EXPECT_EQ(library.build({broken()})[0], nullptr);
  EXPECT_EQ(library.counters().failed, 1) << "it is not tried again";
  EXPECT_EQ(library.build({{"another_name", adding(5).text}})[0], nullptr);
}

TEST_F(Build, NeedsACompiler) {
  Target none, false_one, named;
  {
    const EnvironmentVariable name("AHEAD_CC", "/nonexistent/compiler");
    none = find_target("DEFAULT");
  }
  {
    const EnvironmentVariable name("AHEAD_CC", "false");  // a program, but no compiler
    false_one = find_target("DEFAULT");
  }
  {
    const EnvironmentVariable name("AHEAD_CC", host_target().compiler);
    named = find_target("DEFAULT");
  }
  EXPECT_EQ(none.compiler, "");
  EXPECT_EQ(false_one.compiler, "");
  EXPECT_EQ(named.compiler, host_target().compiler);
  KernelLibrary library({none, folder_});
  EXPECT_EQ(library.build({adding(1), adding(2)}), (std::vector<KernelAddress>{nullptr, nullptr}));
  EXPECT_EQ(library.counters().failed, 2);
}

TEST_F(Build, NeedsNoCompilerForWhatIsInTheCache) {
  BuildSettings other_compiler = settings(), none = settings(), none_with_other_flags = settings();
  other_compiler.target.version += " and newer";
  for (BuildSettings* without : {&none, &none_with_other_flags}) {
    without->target.compiler.clear();
    without->target.version.clear();
  }
  none_with_other_flags.target.flags.emplace_back("-fno-plt");

  KernelLibrary(settings()).build({adding(1)});
  KernelLibrary(other_compiler).build({adding(2)});
  KernelLibrary library(none);
  const std::vector<KernelAddress> kernels = library.build({adding(1), adding(2), adding(3)});
  EXPECT_EQ(added_by(kernels[0]), 1);
  EXPECT_EQ(added_by(kernels[1]), 2);
  EXPECT_EQ(kernels[2], nullptr);
  EXPECT_EQ(library.counters().loaded_from_cache, 2);
  EXPECT_EQ(KernelLibrary(none_with_other_flags).build({adding(1)})[0], nullptr)
      << "that is other code";

  replace("/compilers", "", "another compiler");
  EXPECT_EQ(KernelLibrary(none).build({adding(1)})[0], nullptr) << "damaged";
  KernelLibrary(settings()).build({adding(4)});
  EXPECT_NE(KernelLibrary(none).build({adding(1)})[0], nullptr) << "known again";
}

TEST_F(Build, UsesOnlyFoldersOfItsOwn) {
  EXPECT_TRUE(is_private_folder(folder_));
  ::chmod(folder_.c_str(), 0777);
  EXPECT_FALSE(is_private_folder(folder_));
  const EnvironmentVariable name("AHEAD_CACHE_DIR", folder_);
  EXPECT_EQ(find_cache_folder(), "");
  ::chmod(folder_.c_str(), 0755);
  EXPECT_EQ(find_cache_folder(), folder_);
  EXPECT_FALSE(is_private_folder("/proc/nonexistent/folder"));
  constexpr uid_t somebody = 12345;
  const bool is_given_away = ::chown(folder_.c_str(), somebody, static_cast<gid_t>(-1)) == 0;
  EXPECT_FALSE(is_private_folder(is_given_away ? folder_ : "/"));
}

TEST_F(Build, RemovesWhatWasNotUsedForLongest) {
  constexpr uint64_t limit = 60'000;
  BuildSettings small = settings();
  small.cache_byte_limit = limit;
  for (int i = 1; i <= 8; ++i) {
    KernelLibrary(small).build({adding(i)});
    KernelLibrary(small).build({adding(1)});
  }
  uint64_t bytes = 0;
  for (const std::string& name : names_in(libraries())) {
    struct stat facts {};
    EXPECT_EQ(::stat((libraries() + "/" + name).c_str(), &facts), 0);
    bytes += static_cast<uint64_t>(facts.st_size);
  }
  EXPECT_LE(bytes, limit);
  EXPECT_EQ(names_in(folder_ + "/kernels").size(), names_in(libraries()).size() / 2);
  KernelLibrary library(small);
  library.build({adding(1), adding(8)});
  EXPECT_EQ(library.counters().loaded_from_cache, 2);
  library.build({adding(2)});
  EXPECT_EQ(library.counters().compiled, 1);
}

TEST_F(Build, ThreadsShareOneCompilation) {
  KernelLibrary library(settings());
  std::atomic<int> right{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i)
    threads.emplace_back([&, i] {
      const std::vector<KernelAddress> kernels = library.build({adding(1), adding(2 + i % 2)});
      right += added_by(kernels[0]) == 1 && added_by(kernels[1]) == 2 + i % 2;
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, 8);
  EXPECT_EQ(library.counters().compiled, 3);
}

TEST_F(Build, GoesOnInTheChildOfAFork) {
  KernelLibrary library(settings());
  const KernelAddress before = library.build({adding(1)})[0];
  const pid_t child = ::fork();
  if (child == 0) {
    const std::vector<KernelAddress> kernels = library.build({adding(1), adding(2)});
    ::_exit(kernels[0] == before && added_by(kernels[1]) == 2 ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(added_by(library.build({adding(2)})[0]), 2);
}

/// What the processes of the next test do.
TEST(BuildWorker, BuildsSixKernels) {
  if (std::getenv("AHEAD_TEST_BUILD_WORKER") == nullptr)
    GTEST_SKIP() << "run by Build.ProcessesShareTheCache";
  std::vector<KernelSource> sources;
  for (int i = 1; i <= 6; ++i) sources.push_back(adding(i));
  const std::vector<KernelAddress> kernels = build_kernels(sources);
  for (int i = 1; i <= 6; ++i) EXPECT_EQ(added_by(kernels[static_cast<size_t>(i - 1)]), i);
  std::cout << build_counters().loaded_from_cache << " from the cache" << std::endl;
}

TEST_F(Build, ProcessesShareTheCache) {
  const EnvironmentVariable cache("AHEAD_CACHE_DIR", folder_);
  const EnvironmentVariable worker("AHEAD_TEST_BUILD_WORKER", "1");
  const test::WithoutShards all;
  const auto work = [] { return run_process("/proc/self/exe", {"--gtest_filter=BuildWorker.*"}); };
  std::vector<std::thread> processes;
  std::atomic<int> right{0};
  for (int i = 0; i < 4; ++i) processes.emplace_back([&] { right += work().ok(); });
  for (std::thread& process : processes) process.join();
  EXPECT_EQ(right, 4);
  const ProcessResult later = work();
  EXPECT_TRUE(later.ok()) << later.output;
  EXPECT_NE(later.output.find("6 from the cache"), std::string::npos) << later.output;
}

}  // namespace ahead::native::build_test
