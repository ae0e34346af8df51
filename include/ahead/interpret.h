#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "ahead/executable.h"
#include "ahead/export.h"
#include "ahead/graph.h"

namespace ahead {

/// A graph made ready to run operator by operator below autograd. The reference backend: its
/// results are eager's, to the bit.
///
/// Immutable after construction; several threads may call it at once. It does not refer to the
/// graph it was made from.
class AHEAD_API Interpreter {
 public:
  struct Plan;

  explicit Interpreter(const Graph& graph);
  /// Runs each sub-graph (`ahead.call`) by what `sub_graphs` makes of it, which is told what is
  /// donated to it. `donated`: as in CompileRequest.
  Interpreter(const Graph& graph, const aot::GraphCompiler& sub_graphs,
              const std::vector<bool>& donated = {});
  ~Interpreter();
  Interpreter(Interpreter&&) noexcept;
  Interpreter& operator=(Interpreter&&) noexcept;

  /// Takes one tensor for each graph input, or for each that is not Captured; the captured tensors
  /// are then those the graph holds. Returns one tensor for each graph output. Arguments are
  /// stolen: each is freed after its last use. Throws UserError for a tensor of another size, dtype
  /// or device than the graph was made for.
  std::vector<at::Tensor> operator()(std::vector<at::Tensor>&& args) const;

  /// Begins a run that hands its outputs over as they are made; arguments as above.
  std::unique_ptr<aot::GraphRun> begin(std::vector<at::Tensor>&& args) const;

  /// Runs the graph as a user's program would run: results have history where grad mode was on when
  /// the node was traced, and it can be traced again.
  std::vector<at::Tensor> replay(std::vector<at::Tensor>&& args) const;

 private:
  std::shared_ptr<const Plan> plan_;
};

/// Runs a graph once; see Interpreter.
AHEAD_API std::vector<at::Tensor> interpret(const Graph& graph, std::vector<at::Tensor> args);

}  // namespace ahead
