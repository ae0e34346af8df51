#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ahead/detail/compiled_core.h"
#include "passes/stages.h"
#include "runtime/call/call_plan.h"

namespace ahead::compiling {

/// The outcome of one compilation.
struct Compilation {
  std::shared_ptr<const runtime::CallPlan> plan;
  std::shared_ptr<passes::Stages> stages;
  /// The objects of the user's that operators of the graph are given.
  std::vector<c10::weak_intrusive_ptr<torch::CustomClassHolder>> objects;
  /// The graph names positions in storages, so that the offsets of inputs matter.
  bool with_offsets = false;
  double trace_seconds = 0, compile_seconds = 0;
  /// What the trace found out about inputs and results, if Options::dump_folder wants it.
  std::string meta;

  /// The program of every stage that has run so far: some run in the first backward that needs
  /// them.
  std::vector<Program> programs() const;
  /// How many backwards were compiled to be kept.
  size_t num_backwards() const;
};

/// Traces a function and compiles it: the stages in order. Without Options::fullgraph, an error of
/// LibTorch during the trace is Unsupported.
Compilation compile_function(const aot::FlatFunction& function,
                             const std::vector<at::Tensor>& inputs, const Options& options,
                             const detail::Compilers& compilers);

}  // namespace ahead::compiling
