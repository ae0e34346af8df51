#pragma once

#include <string>
#include <vector>

#include "native/build/kernel_source.h"
#include "native/build/target.h"

namespace ahead::native {

/// A file of kernels: as text, compiled, and what the compiler had to say if it could not.
struct CompiledFile {
  /// The kernels in it, by their places among those that were asked for.
  std::vector<size_t> kernels;
  std::string source;
  /// The bytes of a shared library; empty if it could not be compiled.
  std::string binary;
  std::string errors;
};

/// Compiles kernels in several files at a time, at most one for each processor. Where a file does
/// not compile, each of its kernels is compiled on its own. Unfinished files are in `folder`.
std::vector<CompiledFile> compile_kernels(const std::vector<KernelSource>& sources,
                                          const Target& target, const std::string& folder);

}  // namespace ahead::native
