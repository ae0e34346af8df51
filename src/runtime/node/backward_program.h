#pragma once

#include <c10/util/SmallVector.h>

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "ahead/executable.h"
#include "ahead/graph.h"

namespace ahead::runtime {

/// The backward graph of a compiled function and what was compiled from it so far. Which tangents
/// are defined, how they are laid out, and which gradients are wanted decides what eager would
/// compute; each combination is compiled when it is met first. Of very many, the first are kept.
/// Several threads may use it at once; no lock is held while something is compiled.
class BackwardProgram {
 public:
  using Mask = c10::SmallVector<bool, 8>;

  /// Makes a backward graph for tangents of another layout. It may throw Unsupported.
  using Relayout = std::function<Graph(const Graph&, const std::vector<TensorMeta>& tangents)>;

  /// The tangents, in order, that reach each autograd node of the trace, by Node::sequence. Empty
  /// if there is one tangent only.
  using Reach = std::unordered_map<int64_t, std::vector<bool>>;

  /// The graph takes Saved values and then Tangents, and returns gradients. `donated`: for each
  /// saved value, whether nobody needs it after the last backward.
  BackwardProgram(Graph graph, Reach reach, std::vector<bool> donated, aot::GraphCompiler compiler,
                  Relayout relayout);

  /// Compiles for the case that all tangents are defined, with the layouts of the graph, and all
  /// gradients are wanted.
  void compile() { complete(); }

  /// The backward for one combination of tangents and wanted gradients.
  struct Part {
    aot::Executable run;
    /// For each saved value, whether it is needed; the others may be undefined.
    std::vector<bool> needs;
    /// The layout in which it expects each tangent.
    std::vector<TensorMeta> tangents;
  };

  using PartPtr = std::shared_ptr<const Part>;

  /// The backward, on saved values followed by tangents, for tangents like these. Results that are
  /// not wanted, or that depend on undefined tangents only, are undefined.
  PartPtr part(const std::vector<at::Tensor>& tangents, const Mask& wanted);
  /// How many there are so far.
  size_t num_parts() const;

  /// The graph for one combination of defined tangents, laid out as in the trace, and wanted
  /// gradients.
  Graph graph_for(const Mask& defined, const Mask& wanted) const;
  /// A number that no other program of this process has or had.
  uint64_t id() const { return id_; }
  /// The layout in which the graph expects each tangent.
  const std::vector<TensorMeta>& tangents() const { return tangents_; }
  /// The layout in which it expects each saved value.
  const std::vector<TensorMeta>& saved() const { return saved_; }

 private:
  using Key = std::vector<int64_t>;

  PartPtr complete();
  PartPtr special(const std::vector<at::Tensor>& tangents, const Mask& wanted);
  PartPtr rare(const std::vector<at::Tensor>& tangents, const Mask& wanted);
  PartPtr find(const Key& key) const;
  PartPtr compile(const Graph& graph, const aot::GraphCompiler& compiler) const;
  PartPtr compile(const std::vector<at::Tensor>& tangents, const Mask& wanted) const;
  bool is_as_traced(const std::vector<at::Tensor>& tangents) const;

  const Graph graph_;
  const uint64_t id_;
  const Reach reach_;
  const std::vector<bool> donated_;  ///< for each input
  const aot::GraphCompiler compiler_;
  const Relayout relayout_;
  std::vector<TensorMeta> saved_, tangents_;
  std::atomic<PartPtr> complete_;
  mutable std::mutex mutex_;
  /// By which gradients are wanted, which tangents are defined, and their strides.
  std::map<Key, PartPtr> special_;
};

/// The backward graph for the case that some tangents are undefined and some gradients are not
/// wanted. Eager does not run what only undefined tangents reach; neither does this graph. Its
/// inputs and outputs are the same, but some outputs are undefined. `any_layout`: its values may be
/// laid out in another way than the graph says, as they are in eager, so it has to be traced again.
Graph without_tangents(const Graph& backward, const BackwardProgram::Reach& reach,
                       const BackwardProgram::Mask& defined, const BackwardProgram::Mask& wanted,
                       bool any_layout);

}  // namespace ahead::runtime
