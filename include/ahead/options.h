#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ahead/backend.h"
#include "ahead/backward_autocast.h"
#include "ahead/confirm.h"
#include "ahead/dependence.h"
#include "ahead/partition.h"

namespace torch::nn {
class Module;
}

namespace ahead {

/// What happens when the sizes of arguments change.
enum class Dynamic : uint8_t {
  /// One program serves many sizes where the function does the same for them; each combination of
  /// sizes is observed once.
  Automatic,
  Static,  ///< each combination of sizes is compiled on its own
  /// As Automatic, but once eight combinations of sizes agreed with the program, it serves others
  /// without looking. A function that treats some sizes otherwise may then give wrong results.
  Trusting,
};

/// What happens if a custom operator does not do what its schema says.
enum class SchemaCheck : uint8_t {
  Off,    ///< it is not looked for
  Warn,   ///< a warning, once for each operator
  Throw,  ///< UserError
};

/// When the native backend compiles kernels.
enum class CompileMode : uint8_t {
  Blocking,  ///< the call that needs them waits
  /// A thread of Ahead's compiles them. Until they are ready, ATen runs the graph operator by
  /// operator.
  Background,
};

/// How the joint graph is cut into forward and backward.
enum class Partitioner : uint8_t {
  Default,  ///< what the backward needs is saved, as in eager
  MinCut,   ///< the cheapest mix of saving and computing again
};

/// A Partitioner, or a function of the user's.
class PartitionChoice {
 public:
  PartitionChoice(Partitioner kind) : kind_(kind) {}
  template <class F>
  requires std::is_invocable_r_v<PartitionedGraphs, F&, const JointGraph&> PartitionChoice(
      F function)
      : function_(std::move(function)) {}

  Partitioner kind() const { return kind_; }
  /// Empty unless the user gave one.
  const PartitionFunction& function() const { return function_; }

 private:
  Partitioner kind_ = Partitioner::MinCut;
  PartitionFunction function_;
};

/// How a callable is compiled. An aggregate: `{.fullgraph = true}`.
struct Options {
  /// The name of a backend: "native", which compiles kernels with the system's compiler,
  /// "interpreter", which runs operator by operator and gives eager's bits, or one added with
  /// register_backend.
  std::string backend = default_backend();
  /// Lets the native backend give eager's bits: it leaves to LibTorch what its kernels would round
  /// otherwise.
  bool strict = false;
  /// Whether calls wait for the kernels of the native backend.
  CompileMode compile_mode = CompileMode::Blocking;
  /// What cannot be compiled throws, once the call that showed it has been served. False: such
  /// calls run eagerly, with a warning.
  bool fullgraph = false;
  Dynamic dynamic = Dynamic::Automatic;
  PartitionChoice partitioner = Partitioner::MinCut;
  /// The share of the activations that the default partition saves which may be saved, 0 to 1.
  /// Calls that are observed (see Confirm) run eagerly and take eager's memory.
  double memory_budget = 1.0;
  /// When the function is observed again, to see that it does the same every time.
  Confirm confirm = Confirm::Doubling;
  /// What the function depends on beside its arguments, where no tensor shows it: a callable whose
  /// value is part of what decides a program.
  Dependence depends_on = {};
  /// Modules that the function uses without being one: train() and eval() of these and of all
  /// modules in them decide which program a call runs. A compiled module is watched by itself.
  std::vector<std::shared_ptr<torch::nn::Module>> watch = {};
  /// Passes over the graphs that are not run, by name; see ahead/passes.h.
  std::vector<std::string> skip_passes = {};
  /// The most programs kept for one callable; calls that need another run eagerly.
  int64_t recompile_limit = 8;
  /// Allows create_graph through the compiled backward. False: that throws.
  bool double_backward = true;
  /// The autocast under which the backward runs; as in eager, the one where backward() is called.
  /// Without double_backward that must be off, or the function's own.
  BackwardAutocastChoice backward_autocast = BackwardAutocast::AsCalled;
  /// Looks, the first time that a graph runs, whether its custom operators return new memory where
  /// their schemas say so, rather than that of an argument or of another result.
  SchemaCheck custom_op_aliasing = SchemaCheck::Warn;
  /// Notes on each node of the graphs the place in the user's code that called the operator: file,
  /// line and function, as far as debug information tells. See Node::place.
  bool record_places = false;
  /// Prints what the graphs are given on each call.
  bool verbose = false;
  /// A folder to which the options, the plan and the program of every stage of every compilation
  /// are written as text; empty: none.
  std::string dump_folder = {};
  /// Checks on every call what the program takes for granted: what backends return, which memory is
  /// shared, that saved tensors stay as they are. Throws InternalError or UserError.
  bool debug_asserts = false;
  /// Tensors from outside are written to inside the graph where that is possible. False: the graph
  /// returns their new contents, which are copied when it has run.
  bool keep_input_mutations = true;
  /// Graphs are given the states of the default generators of random numbers and return the new
  /// ones, rather than draw from the generators: their random operators are functions of these
  /// states, which a partitioner may run again. The numbers are eager's in any case.
  bool functionalize_rng = false;
  /// The backward owns the saved tensors unless the graph is retained: it frees each after its last
  /// use, and a backend may overwrite it. False: they live until the backward is done.
  bool donated_buffers = true;
  /// The backward is compiled when it first runs.
  bool lazy_backward = true;
};

}  // namespace ahead
