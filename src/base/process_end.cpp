#include "base/process_end.h"

#include <ATen/Context.h>

namespace ahead {
namespace {

bool is_ending = false;

struct Sentinel {
  ~Sentinel() { is_ending = true; }
};

}  // namespace

bool is_process_ending() {
  return is_ending;
}

/// What is made after LibTorch's objects is destroyed before them.
void watch_process_end() {
  if (is_ending) return;
  [[maybe_unused]] static const bool has_gpu = at::globalContext().hasCUDA();
  static const Sentinel sentinel;
}

}  // namespace ahead
