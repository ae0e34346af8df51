#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "ahead/backend.h"
#include "ahead/detail/flat_call.h"
#include "ahead/detail/host_parts.h"
#include "ahead/executable.h"
#include "ahead/export.h"
#include "ahead/graph.h"
#include "ahead/graph_signature.h"
#include "ahead/passes.h"

namespace ahead::aot {

/// What is exported of a module. An aggregate: `{.trace_joint = true, .output_loss_index = 0}`.
struct ExportOptions {
  /// Exports the gradient as well. False: what the module computes when it is called.
  bool trace_joint = false;
  /// Which tensor of the result is the loss that is differentiated; -1: none was named.
  int64_t output_loss_index = -1;
  /// The gradient is that of the loss, and the graph takes no tangents. False: the graph takes a
  /// tangent for each result that requires grad, and needs no loss.
  bool no_tangents = true;
  /// The graph writes to buffers and arguments itself (`aten.copy_`). False: it returns their new
  /// contents.
  bool keep_input_mutations = false;
  /// What takes the place of operators, by name.
  DecompositionTable decompositions = {};
  /// Names of the tensors among the arguments and in the result; empty: `arg0`, …, `out0`, ….
  std::vector<std::string> input_names = {};
  std::vector<std::string> output_names = {};
};

class ExportedFunction;

/// A module as a graph without captured tensors, with the tensors it takes besides the arguments.
struct AHEAD_API ExportedModule {
  JointGraph graph;
  GraphSignature signature;
  /// Parameters, buffers and constants: the first inputs of the graph, in order. Those of an
  /// exported module are the module's own tensors, those of a loaded one are new.
  std::vector<at::Tensor> tensors;

  /// The parameter, buffer or constant of that name. Throws UserError if there is none.
  const at::Tensor& tensor(std::string_view name) const;

  /// Makes the program ready for many calls, by a backend of this name.
  ExportedFunction prepare(const std::string& backend = default_backend()) const;
  /// Runs it once by the interpreter; see ExportedFunction.
  std::vector<at::Tensor> operator()(const std::vector<at::Tensor>& inputs) const;

  /// Writes `program.txt`, the graph and its signature, and `tensors.pt`, which torch::load reads
  /// as a std::vector<at::Tensor>, into a folder that is made where there is none.
  void save(const std::string& folder) const;
  /// Reads what save() wrote, in any process that knows the graph's operators. Throws UserError if
  /// files are missing, damaged, or of another version.
  static ExportedModule load(const std::string& folder);
};

/// An exported module that can be called. Holds its tensors; several threads may call it at once,
/// as long as it writes to none of them.
class AHEAD_API ExportedFunction {
 public:
  explicit ExportedFunction(const ExportedModule& module,
                            const std::string& backend = default_backend());

  /// Takes the user inputs and returns the user outputs. Buffers and arguments get their new
  /// contents. Nothing has a history.
  std::vector<at::Tensor> operator()(const std::vector<at::Tensor>& inputs) const;

  struct Results {
    std::vector<at::Tensor> outputs;
    /// Of parameters and user inputs, by name; undefined where there is none.
    std::map<std::string, at::Tensor> gradients;
  };
  /// The same with the gradients. Takes a tangent for each of the graph's.
  Results run(const std::vector<at::Tensor>& inputs,
              const std::vector<at::Tensor>& tangents = {}) const;

 private:
  GraphSignature signature_;
  std::vector<at::Tensor> tensors_;
  Executable executable_;
};

namespace detail {
AHEAD_API ExportedModule export_flat(const std::shared_ptr<torch::nn::Module>& module,
                                     const FlatFunction& forward,
                                     const std::vector<at::Tensor>& inputs,
                                     const ExportOptions& options);
}  // namespace detail

/// Exports a module (a ModuleHolder, or a shared_ptr to one) as it is called with these tensors:
/// its `forward` is run once on traced ones, in the mode (training or evaluation) that it is in.
/// Sizes, and whatever else is no tensor, become constants; but an integer that it reads from a
/// tensor and keeps as c10::SymInt is read in each run, where no gradient is exported. A forward
/// that is a template and takes anything has to be given a tuple, as below.
///
/// Throws Unsupported for what no graph can hold, and UserError for a loss that is none.
template <class M>
ExportedModule export_module(M module, const std::vector<at::Tensor>& inputs,
                             const ExportOptions& options = {}) {
  const FlatFunction forward = ahead::detail::flat_call(module, inputs);
  return detail::export_flat(ahead::detail::watched_module(module), forward, inputs, options);
}

/// The same for arguments of any kind (see ahead/tree.h), in a tuple. User inputs are the defined
/// tensors in them, in order.
template <class M, class First, class... Rest>
ExportedModule export_module(M module, const std::tuple<First, Rest...>& arguments,
                             const ExportOptions& options = {}) {
  return std::apply(
      [&](const auto&... args) {
        ahead::detail::TreeFunction function(module, args...);
        return detail::export_flat(ahead::detail::watched_module(module), std::ref(function),
                                   function.inputs().leaves, options);
      },
      arguments);
}

}  // namespace ahead::aot
