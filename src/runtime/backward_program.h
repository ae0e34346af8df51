#pragma once

#include <c10/util/SmallVector.h>

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "ahead/executable.h"
#include "ahead/graph.h"

namespace ahead::runtime {

/// The backward graph of a compiled function and what was compiled from it so far. Which gradients
/// come in and which are asked for decides what eager would compute; each combination is compiled
/// when it is met first. Several threads may use it at once.
class BackwardProgram {
 public:
  using Mask = c10::SmallVector<bool, 8>;

  /// The graph takes Saved values and then Tangents, and returns gradients.
  BackwardProgram(Graph graph, aot::GraphCompiler compiler);

  /// Compiles for the case that every gradient comes in and is asked for.
  void compile() { complete(); }

  /// Runs the backward on saved values followed by tangents. A tangent for which `defined` is false
  /// is ignored. Results that are not wanted, or that depend on undefined tangents only, are
  /// undefined.
  std::vector<at::Tensor> run(std::vector<at::Tensor>&& args, const Mask& defined,
                              const Mask& wanted);

  const Graph& graph() const { return graph_; }
  /// A number that no other program of this process has or had.
  uint64_t id() const { return id_; }
  /// The layout in which the graph expects each tangent.
  const std::vector<TensorMeta>& tangents() const { return tangents_; }
  size_t num_saved() const { return num_saved_; }

 private:
  const aot::Executable& complete();
  const aot::Executable& partial(const Mask& defined, const Mask& wanted);
  aot::Executable compile(const Graph& graph) const;

  const Graph graph_;
  const uint64_t id_;
  const aot::GraphCompiler compiler_;
  size_t num_saved_ = 0;
  std::vector<TensorMeta> tangents_;
  std::once_flag compiled_;
  aot::Executable complete_;
  std::mutex mutex_;
  std::map<std::vector<bool>, std::unique_ptr<const aot::Executable>> partial_;
};

/// The backward graph for the case that some tangents are undefined and some gradients are not
/// wanted. Eager does not run what only undefined tangents reach; neither does the result. Its
/// inputs and outputs are the same, but some outputs are undefined.
Graph without_tangents(const Graph& backward, const BackwardProgram::Mask& defined,
                       const BackwardProgram::Mask& wanted);

}  // namespace ahead::runtime
