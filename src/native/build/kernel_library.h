#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "native/build/compile_kernels.h"
#include "native/build/kernel_source.h"
#include "native/build/kernel_store.h"
#include "native/build/target.h"

namespace ahead::native {

/// The address of a kernel's function; null if it could not be had.
using KernelAddress = void*;

/// Where a kernel came from.
enum class KernelOrigin : uint8_t {
  Process,   ///< the process had it
  Cache,     ///< the cache on disk
  Compiler,  ///< it was compiled
  Nowhere,   ///< it could not be had
};

/// What building kernels has come to in this process.
struct BuildCounters {
  int64_t compiled = 0;
  int64_t loaded_from_cache = 0;
  int64_t failed = 0;
  /// The time that callers spent waiting for compilers and loading.
  double seconds = 0;
};

/// How kernels are built.
struct BuildSettings {
  Target target;
  /// Where compiled kernels are kept; empty: nowhere.
  std::string cache_folder;
  uint64_t cache_byte_limit = uint64_t{1} << 30;
  /// Loads libraries without their files, as from a folder whose files must not be executed.
  bool load_from_memory = false;
};

/// The kernels of a process. Each is compiled once, or found in the cache, and remains; one that
/// could not be had is not tried again. Threads may share it: they wait for each other only where
/// they want the same kernels. A child of fork() has all kernels of its parent and builds more;
/// what other threads were building at that moment it builds for itself.
class KernelLibrary {
 public:
  explicit KernelLibrary(BuildSettings settings);

  /// See build_kernels.
  std::vector<KernelAddress> build(const std::vector<KernelSource>& sources,
                                   std::vector<KernelOrigin>* origins = nullptr);

  BuildCounters counters() const;

 private:
  struct Wanted {
    std::string key;
    KernelSource source;
    KernelAddress address = nullptr;
    KernelOrigin origin = KernelOrigin::Nowhere;
  };

  struct Built {
    KernelAddress address = nullptr;
    /// Where it came from, until somebody was told; then it was in the process.
    KernelOrigin origin = KernelOrigin::Nowhere;
  };

  void publish(const std::vector<Wanted>& wanted);
  void load_from_cache(std::vector<Wanted>& wanted);
  void compile(std::vector<Wanted>& wanted);
  void load_compiled(const CompiledFile& file, std::vector<Wanted*>& wanted);
  void* open(const std::string& library, const std::string& bytes, std::string& reason);
  void warn_about(const CompiledFile& file, const Wanted& kernel, const std::string& reason) const;

  const BuildSettings settings_;
  std::unique_ptr<KernelStore> store_;
  /// Whose kernels may be used: those of the own compiler; without one, of all that made the same
  /// kind of code.
  std::vector<std::string> compilers_;

  mutable std::mutex mutex_;
  std::condition_variable built_;
  std::unordered_map<std::string, Built> kernels_;
  /// The process that is building a kernel, by its key.
  std::unordered_map<std::string, int64_t> builders_;
  /// Loaded libraries by their digests.
  std::unordered_map<std::string, void*> libraries_;
  BuildCounters counters_;
};

/// The functions of these sources, in their order, compiled where neither this process nor the
/// cache has them; null for those that cannot be had, which a warning explains. `origins`: gets
/// where each came from, which the first caller who asks is told, whoever built it.
std::vector<KernelAddress> build_kernels(const std::vector<KernelSource>& sources,
                                         std::vector<KernelOrigin>* origins = nullptr);

/// What build_kernels has done so far.
BuildCounters build_counters();

}  // namespace ahead::native
