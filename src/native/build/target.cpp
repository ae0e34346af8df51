#include "native/build/target.h"

#include <ATen/Version.h>
#include <unistd.h>

#include "base/environment.h"
#include "native/build/process.h"

namespace ahead::native {
namespace {

/// The path of a program: itself if it has a slash, else where PATH has it; empty if nowhere.
std::string path_of_program(const std::string& program) {
  if (program.find('/') != std::string::npos)
    return ::access(program.c_str(), X_OK) == 0 ? program : "";
  const std::string folders = environment("PATH");
  for (size_t begin = 0; begin <= folders.size();) {
    const size_t end = std::min(folders.find(':', begin), folders.size());
    const std::string path = folders.substr(begin, end - begin) + "/" + program;
    if (end > begin && ::access(path.c_str(), X_OK) == 0) return path;
    begin = end + 1;
  }
  return "";
}

/// Fills in the compiler and its version; false if it is not there or does not work.
bool try_compiler(const std::string& program, bool is_surely_cpp, Target& target) {
  const std::string path = path_of_program(program);
  if (path.empty()) return false;
  const ProcessResult version = run_process(path, {"--version"});
  if (!version.ok()) return false;
  // A compiler of C may have come without its part for C++.
  if (!is_surely_cpp && !run_process(path, {"-x", "c++", "-fsyntax-only", "/dev/null"}).ok())
    return false;
  target.compiler = path;
  target.version = version.output.substr(0, version.output.find('\n'));
  return true;
}

void find_compiler(Target& target) {
  const std::string wanted = environment("AHEAD_CC");
  if (!wanted.empty()) {
    try_compiler(wanted, false, target);
    return;
  }
  for (const char* program : {"c++", "g++", "clang++"})
    if (try_compiler(program, true, target)) return;
  for (const char* program : {"cc", "gcc"})
    if (try_compiler(program, false, target)) return;
}

}  // namespace

Target find_target(const std::string& capability) {
  Target target;
  target.capability = capability;
  // Square roots, rounding and comparisons are vector instructions only without errno and traps.
  target.flags = {"-std=gnu++17",
                  "-O2",
                  "-fno-math-errno",
                  "-fno-trapping-math",
                  "-ffp-contract=fast",
                  "-fno-exceptions",
                  "-fno-rtti",
                  "-fPIC",
                  "-shared",
                  "-nostdlib",
                  "-pipe",
                  "-w",
                  "-Wno-psabi"};
  const auto add = [&](int vector_bytes, std::initializer_list<const char*> flags) {
    target.vector_bytes = vector_bytes;
    target.flags.insert(target.flags.end(), flags.begin(), flags.end());
  };
  if (capability == "AVX512")
    add(64, {"-mavx512f", "-mavx512dq", "-mavx512bw", "-mavx512vl", "-mfma", "-mf16c",
             "-mprefer-vector-width=512"});
  else if (capability == "AVX2")
    add(32, {"-mavx2", "-mfma", "-mf16c"});
  find_compiler(target);
  return target;
}

const Target& host_target() {
  static const auto* target = new Target(find_target(at::get_cpu_capability()));
  return *target;
}

}  // namespace ahead::native
