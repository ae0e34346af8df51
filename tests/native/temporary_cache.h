#pragma once

#include <dirent.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "base/environment.h"
#include "native/build/cache_folder.h"
#include "native/build/process.h"

namespace ahead::native::test {

/// The names of what is in a folder.
inline std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  DIR* const stream = ::opendir(folder.c_str());
  if (stream == nullptr) return names;
  while (const dirent* entry = ::readdir(stream))
    if (entry->d_name[0] != '.') names.emplace_back(entry->d_name);
  ::closedir(stream);
  return names;
}

/// Removes a folder with the files in it and in the folders in it.
inline void remove_folder(const std::string& folder) {
  for (const std::string& name : names_in(folder)) {
    const std::string path = folder + "/" + name;
    if (::unlink(path.c_str()) != 0) remove_folder(path);
  }
  EXPECT_EQ(::rmdir(folder.c_str()), 0) << folder;
}

/// A folder for kernels, as long as this lives.
class TemporaryCache {
 public:
  TemporaryCache() = default;
  TemporaryCache(const TemporaryCache&) = delete;
  TemporaryCache& operator=(const TemporaryCache&) = delete;
  ~TemporaryCache() { remove_folder(path_); }
  const std::string& path() const { return path_; }

 private:
  const std::string path_ = make_temporary_folder();
};

/// Sets a variable for as long as it lives.
class EnvironmentVariable {
 public:
  EnvironmentVariable(const char* name, const std::string& value)
      : name_(name), before_(environment(name)) {
    ::setenv(name, value.c_str(), 1);
  }
  EnvironmentVariable(const EnvironmentVariable&) = delete;
  EnvironmentVariable& operator=(const EnvironmentVariable&) = delete;
  ~EnvironmentVariable() {
    before_.empty() ? ::unsetenv(name_) : ::setenv(name_, before_.c_str(), 1);
  }

 private:
  const char* name_;
  std::string before_;
};

/// Lets this program, where it is started meanwhile, run the tests that it is asked for, whichever
/// share of all tests this process has.
struct WithoutShards {
  const EnvironmentVariable total{"GTEST_TOTAL_SHARDS", "1"}, index{"GTEST_SHARD_INDEX", "0"};
};

/// Runs a test of this program in a process of its own.
inline ProcessResult run_worker(const std::string& name) {
  const WithoutShards all;
  return run_process("/proc/self/exe", {"--gtest_filter=" + name});
}

}  // namespace ahead::native::test
