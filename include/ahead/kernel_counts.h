#pragma once

#include <atomic>
#include <cstdint>

namespace ahead::aot {

/// What a backend counts of its kernels, for CompileStats. Several threads may add to it.
struct KernelCounts {
  std::atomic<uint64_t> kernels{0};     ///< groups of operators that kernels compute
  std::atomic<uint64_t> compiled{0};    ///< kernels that were compiled for them
  std::atomic<uint64_t> from_cache{0};  ///< kernels that were found on disk
  std::atomic<uint64_t> failed{0};      ///< groups whose kernel could not be had
  std::atomic<uint64_t> early_runs{0};  ///< of graphs, before their kernels were ready
};

}  // namespace ahead::aot
