#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ahead/detail/compiled_core.h"
#include "compile/sized_programs.h"
#include "passes/stages.h"
#include "runtime/call/call_plan.h"
#include "runtime/compile_request.h"

namespace ahead::compiling {

/// The outcome of one compilation.
struct Compilation {
  /// Null: the trace was only remembered; see ManySizes.
  std::shared_ptr<const runtime::CallPlan> plan;
  std::shared_ptr<passes::Stages> stages;
  /// The program for many sizes of which the plan is for some; null: the plan stands alone.
  std::shared_ptr<SizedProgram> sized;
  /// The sizes, and the numbers among them that may be others.
  std::vector<int64_t> sizes = {};
  std::vector<FreeNumber> free = {};
  /// See SizedPrograms::Match.
  bool is_certain = true;
  /// What is known of graphs that are alike; null: no program for many sizes may be made of it.
  std::shared_ptr<SizedPrograms::Family> family = nullptr;
  /// The objects of the user's that operators of the graph are given.
  std::vector<c10::weak_intrusive_ptr<torch::CustomClassHolder>> objects;
  /// The graph names positions in storages, so that the offsets of inputs matter.
  bool with_offsets = false;
  double trace_seconds = 0, compile_seconds = 0;
  /// A backend compiled something for it.
  bool is_new = false;
  /// What the trace found out about inputs and results, if Options::dump_folder wants it.
  std::string meta;

  /// The program of every stage that has run so far: some run in the first backward that needs
  /// them.
  std::vector<Program> programs() const;
  /// How many backwards were compiled to be kept.
  size_t num_backwards() const;
};

/// What is known of other sizes of a function, and what to do if that does not help.
struct ManySizes {
  SizedPrograms& programs;
  /// Compiles for the sizes at hand if no program for many can be had. False: the trace is
  /// remembered.
  bool compiles_fixed = true;
  /// The floating-point numbers among the arguments; see TreeSpec::reals().
  std::vector<double> reals = {};
  /// See SizedPrograms::family_of().
  std::vector<int64_t> static_sizes = {};
};

/// Traces a function and compiles it: the stages in order. Without Options::fullgraph, an error of
/// LibTorch during the trace is Unsupported. `sizes`: a program for many sizes is used or made
/// where there is, or can be, one; null: the program is for the sizes at hand. `subject` is left as
/// what was compiled.
Compilation compile_function(Subject& subject, const Options& options,
                             const detail::Compilers& compilers, ManySizes* sizes = nullptr);

}  // namespace ahead::compiling
