#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ahead::native {

/// A kernel in a compiled file: what it is found by, and the name of its function.
struct StoredKernel {
  std::string key;
  std::string name;
};

/// Compiled kernels on disk, shared by processes. `libraries/` has each compiled file under the
/// digest of its bytes, with its source beside it; `kernels/` says for each key which of them has
/// it, and `compilers/` which compilers made them. Every file appears complete or not at all, and a
/// damaged one is as good as none.
class KernelStore {
 public:
  /// Of a folder that exists. More than `byte_limit` are not kept: what was not used for longest
  /// goes.
  KernelStore(std::string folder, uint64_t byte_limit);

  /// The digest of the library that has a kernel; empty if none is known.
  std::string library_of(const std::string& key) const;
  /// The bytes of a library, which counts as used now; empty if they are missing or damaged.
  std::string read_library(const std::string& library) const;
  std::string path_of_library(const std::string& library) const;

  /// Keeps a compiled file with its source; returns its digest, empty if that fails.
  std::string add(const std::string& binary, const std::string& source,
                  const std::vector<StoredKernel>& kernels);

  /// Remembers a compiler, by all that kernels which it makes depend on beside their texts.
  void add_compiler(const std::string& compiler) const;
  /// All compilers that were remembered, that which was last in use first.
  std::vector<std::string> compilers() const;

  /// Keeps the source of a kernel that does not compile; returns its path, empty if that fails.
  std::string add_failed(const std::string& name, const std::string& source) const;

  /// A folder for unfinished files, on the same disk.
  const std::string& work_folder() const { return work_; }

 private:
  void remove_oldest();
  void remove_library(const std::string& library);

  std::string kernels_, libraries_, compilers_, failed_, work_;
  uint64_t byte_limit_;
};

}  // namespace ahead::native
