#pragma once

#include <string>
#include <vector>

namespace ahead::native {

/// The compiler of this machine and the code it is to make.
struct Target {
  /// The path of the compiler; empty if there is none that works.
  std::string compiler;
  /// The first line that it says about its version.
  std::string version;
  /// Its arguments, without the names of files.
  std::vector<std::string> flags;
  /// What at::get_cpu_capability() says.
  std::string capability;
  /// The size of a vector register.
  int vector_bytes = 16;
};

/// The flags and the size of vectors for a capability, with the compiler that AHEAD_CC names, or
/// else with the first of c++, g++, clang++, cc and gcc on PATH that compiles C++.
Target find_target(const std::string& capability);

/// The target of this machine, found once.
const Target& host_target();

}  // namespace ahead::native
