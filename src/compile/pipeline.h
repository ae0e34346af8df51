#pragma once

#include <memory>
#include <vector>

#include "ahead/detail/compiled_core.h"
#include "ahead/errors.h"
#include "runtime/call_plan.h"

namespace ahead::compiling {

/// What one compilation gave.
struct Compilation {
  std::shared_ptr<const runtime::CallPlan> plan;
  std::vector<Program> programs;
  /// Equal for functions that do the same with the same captured tensors.
  uint64_t fingerprint = 0;
  /// The graph names positions in storages, so that the offsets of inputs matter.
  bool with_offsets = false;
  /// Tensors that the function stored outside itself, and which the last results of its plan are
  /// for: the plan is right for one call only.
  std::vector<at::Tensor> escapes;
  double trace_seconds = 0, compile_seconds = 0;
};

/// LibTorch complained about a function as it is traced. Whether it would do so about the function
/// itself, only running it tells.
class DoubtfulTrace : public Unsupported {
 public:
  using Unsupported::Unsupported;
};

/// Traces a function and compiles it: the stages in order. Without Options::fullgraph, an error of
/// LibTorch during the trace is a DoubtfulTrace. `keep_escapes`: see tracing::capture.
Compilation compile_function(const aot::FlatFunction& function,
                             const std::vector<at::Tensor>& inputs, const Options& options,
                             const detail::Compilers& compilers, bool keep_escapes);

/// Traces a function only, to compare its fingerprint.
uint64_t fingerprint_of(const aot::FlatFunction& function, const std::vector<at::Tensor>& inputs,
                        const Options& options);

}  // namespace ahead::compiling
