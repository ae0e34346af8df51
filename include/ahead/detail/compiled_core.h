#pragma once

#include <c10/util/FunctionRef.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ahead/backend_traits.h"
#include "ahead/detail/host_parts.h"
#include "ahead/executable.h"
#include "ahead/export.h"
#include "ahead/options.h"
#include "ahead/passes.h"
#include "ahead/program.h"
#include "ahead/tree_spec.h"

namespace torch::nn {
class Module;
}

namespace ahead {

/// Counts of one compiled callable. Each call is one of observed_calls, cache_hits and eager_calls.
struct CompileStats {
  uint64_t calls = 0;
  uint64_t observed_calls = 0;  ///< ran the function itself, and wrote down what it did
  uint64_t cache_hits = 0;      ///< ran from graphs
  uint64_t eager_calls = 0;     ///< ran the function itself, with nothing to gain
  uint64_t value_misses = 0;    ///< programs left because a value that is read was another one
  uint64_t traces = 0;          ///< recordings, or functions, that were traced
  uint64_t compilations = 0;    ///< programs that were made, each for some sizes or for many
  uint64_t recompiles = 0;      ///< those after the first
  uint64_t guard_failures = 0;  ///< calls that no program fitted, the first one not counted
  double trace_seconds = 0;
  double compile_seconds = 0;  ///< everything after the trace
  /// Backwards of the programs in use: one for each choice of gradients that come in or are asked
  /// for, and for each layout of these. Of one program some dozens are kept.
  uint64_t backwards = 0;
  /// Groups of operators that kernels of the native backend compute, in all programs that were
  /// made, and how many different kernels were compiled for them or found in the cache on disk. The
  /// rest were in the process already.
  uint64_t kernels = 0, kernels_compiled = 0, kernels_from_cache = 0;
  /// Groups that are left to ATen, since their kernel did not compile or load, or there is no
  /// compiler; a warning says why.
  uint64_t kernels_failed = 0;
  /// Runs of graphs, forward or backward, without kernels, since these were not ready yet
  /// (CompileMode::Background).
  uint64_t runs_before_kernels = 0;
};

namespace detail {

struct Entry;

/// What the author of a compiler gives for one callable.
struct Compilers {
  aot::GraphCompiler forward, backward, inference;
  /// What takes the place of operators before the graphs are compiled; null: nothing.
  std::shared_ptr<const DecompositionTable> decompositions = nullptr;
  /// So many leading arguments keep their memory from call to call.
  int64_t num_params_buffers = 0;
  /// How images are to lie in the graphs.
  LayoutPreferences layouts = {};
  /// See BackendTraits.
  std::function<void(std::function<Graph()> make)> begin = {};
  /// The function is observed, as with a backend by name, rather than traced.
  bool observe = false;
};

/// Whether this thread is inside a trace or an observed call, where compiled callables run as part
/// of it.
AHEAD_API bool is_inlined();
/// The result of the call an entry was made from, with placeholders for its tensors.
AHEAD_API const void* prototype_of(const Entry& entry);

/// A call that runs the user's function itself while what it does is written down. Whatever
/// happens, the recording ends with it.
class AHEAD_API Observation {
 public:
  Observation();
  ~Observation();
  Observation(const Observation&) = delete;
  Observation& operator=(const Observation&) = delete;

  struct State;
  std::unique_ptr<State> state;
};

/// Lets go of the arguments that the caller gave away, once it is sure that a program runs. Returns
/// the list of all arguments, from which the call takes them.
using GiveAway = c10::function_ref<std::vector<at::Tensor>&()>;

/// What became of a call, or is to be done with it.
struct Served {
  /// What ran it, and what it gave; null: the user's function has to run.
  std::shared_ptr<const Entry> entry = nullptr;
  std::vector<at::Tensor> results = {};
  /// If the function has to run: what watches it; null: nobody has to.
  std::unique_ptr<Observation> observation = nullptr;
};

/// A compiled callable without its types: programs, the calls they fit, and counts.
class AHEAD_API CompiledCore {
 public:
  using MakePrototype = std::function<std::shared_ptr<const void>()>;

  /// Programs are made of what the user's function was seen to do.
  explicit CompiledCore(Options options);
  /// Programs are made for compilers of the caller's.
  CompiledCore(Options options, Compilers compilers);
  ~CompiledCore();
  CompiledCore(const CompiledCore&) = delete;
  CompiledCore& operator=(const CompiledCore&) = delete;

  /// Makes the training flags of a module and of all modules in it part of what decides a program,
  /// and the probabilities of those that drop something.
  void watch(const std::shared_ptr<torch::nn::Module>& module);

  /// Whether the user's function is traced itself, rather than observed.
  bool traces_function() const { return traces_function_; }
  /// Runs a call from a program that fits it. If there is none, the function has to run, watched or
  /// not. `give_away`: see GiveAway; none: the caller keeps all arguments.
  Served serve(const FlatTree& inputs, const HostParts& host, GiveAway give_away = {});
  /// The same, but what fits no program is traced: `function`, then `prototype`.
  Served serve_traced(const FlatTree& inputs, const aot::FlatFunction& function,
                      const MakePrototype& prototype);
  /// How an observed call ended.
  struct Ending {
    const FlatTree& outputs;
    bool is_reference;     ///< what it returned is not the caller's own
    bool keeps_arguments;  ///< the arguments are as they were
  };
  /// Ends an observed call: what was seen may become a program. Throws what cannot be compiled if
  /// the options want that.
  void finish(Observation& observation, const Ending& ending, const MakePrototype& prototype);

  CompileStats stats() const;
  std::vector<Program> programs() const;
  std::string explain(const FlatTree& inputs) const;
  void reset();

  struct State;

 private:
  const Options options_;
  const std::shared_ptr<aot::KernelCounts> kernel_counts_;
  const Compilers compilers_;
  const bool traces_function_;
  std::unique_ptr<State> state_;
};

}  // namespace detail
}  // namespace ahead
