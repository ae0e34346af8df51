#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <type_traits>
#include <vector>

#include "ahead/executable.h"
#include "ahead/export.h"
#include "ahead/options.h"
#include "ahead/passes.h"
#include "ahead/tree_spec.h"

namespace torch::nn {
class Module;
}

namespace ahead {

/// Counts of one compiled callable.
struct CompileStats {
  uint64_t traces = 0;
  uint64_t recompiles = 0;      ///< programs made after the first
  uint64_t guard_failures = 0;  ///< calls that no program fitted, the first one not counted
  uint64_t eager_calls = 0;
  uint64_t cache_hits = 0;
  double trace_seconds = 0;
  double compile_seconds = 0;  ///< everything after the trace
};

/// The program after one stage of a compilation.
struct Program {
  std::string name;
  double seconds = 0;
  std::shared_ptr<const Graph> graph;

  std::string str() const { return graph->str(); }
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
};

/// Whether this thread is inside a trace, where compiled callables run as part of it.
AHEAD_API bool is_tracing();
/// The result of the call an entry was traced from, with placeholders for its tensors.
AHEAD_API const void* prototype_of(const Entry& entry);

/// What a ModuleHolder, or a shared_ptr to a module, points to.
template <class F>
auto watched_module(F& f) -> std::enable_if_t<
    std::is_convertible_v<decltype(f.ptr()), std::shared_ptr<torch::nn::Module>>,
    std::shared_ptr<torch::nn::Module>> {
  return f.ptr();
}
template <class M>
auto watched_module(std::shared_ptr<M>& f) -> std::enable_if_t<
    std::is_convertible_v<std::shared_ptr<M>, std::shared_ptr<torch::nn::Module>>,
    std::shared_ptr<torch::nn::Module>> {
  return f;
}

/// What is to be done with a call.
struct Prepared {
  /// What runs it; null: it must run eagerly.
  std::shared_ptr<const Entry> entry;
  /// Of a call whose trace LibTorch complained about: for CompiledCore::keep_eager(), once eager
  /// has run it. If eager throws, the complaint was about the program and not about the trace.
  std::shared_ptr<Entry> doubtful = nullptr;
};

/// A compiled callable without its types: programs, the calls they fit, and counts.
class AHEAD_API CompiledCore {
 public:
  using MakePrototype = std::function<std::shared_ptr<const void>()>;

  explicit CompiledCore(Options options);
  CompiledCore(Options options, Compilers compilers);
  ~CompiledCore();
  CompiledCore(const CompiledCore&) = delete;
  CompiledCore& operator=(const CompiledCore&) = delete;

  /// Makes the training flags of a module and of all modules in it part of what decides a program.
  void watch(std::shared_ptr<torch::nn::Module> module);

  /// Finds the entry that fits a call, which is compiled if there is none. `prototype` is called
  /// after `function`.
  Prepared prepare(const FlatTree& inputs, const aot::FlatFunction& function,
                   const MakePrototype& prototype);
  /// Lets further calls like one that ran eagerly do so without a trace, if there was a doubt.
  void keep_eager(const Prepared& prepared);
  std::vector<at::Tensor> run(const Entry& entry, const std::vector<at::Tensor>& leaves);

  CompileStats stats() const;
  std::vector<Program> programs() const;
  std::string explain(const FlatTree& inputs) const;
  void reset();

 private:
  struct Situation;
  struct State;
  using Entries = std::vector<std::shared_ptr<Entry>>;

  Situation situation(const FlatTree& inputs) const;
  std::shared_ptr<Entry> find(const Situation& situation) const;
  std::shared_ptr<Entry> compile(const Situation& situation, const aot::FlatFunction& function,
                                 const MakePrototype& prototype);
  std::shared_ptr<Entry> make_entry(const Situation& situation, const aot::FlatFunction& function,
                                    const MakePrototype& prototype);
  /// What remembers that calls like this one have to run eagerly.
  static std::shared_ptr<Entry> make_eager_entry(const Situation& situation, std::string reason);
  std::shared_ptr<Entry> confirm(const std::shared_ptr<Entry>& entry, const Situation& situation,
                                 const aot::FlatFunction& function, const MakePrototype& prototype);
  std::shared_ptr<Entry> replace(const std::shared_ptr<Entry>& entry, const Situation& situation,
                                 const aot::FlatFunction& function, const MakePrototype& prototype);
  bool does_the_same(const Entry& entry, const Situation& situation,
                     const aot::FlatFunction& function);
  void refuse(const std::string& reason) const;

  const Options options_;
  const Compilers compilers_;
  std::unique_ptr<State> state_;
};

}  // namespace detail
}  // namespace ahead
