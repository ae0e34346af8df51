#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "runtime/node/variants.h"

namespace ahead::compiling {

/// The backward graph of a compiled function and what was compiled from it so far. Each combination
/// of tangents, wanted gradients and modes (deterministic algorithms) is compiled when it is met
/// first. Of very many, the first are
/// kept. No lock is held while something is compiled.
class BackwardProgram final : public runtime::BackwardVariants {
 public:
  /// Which autograd nodes of the trace eager runs, by Node::sequence.
  struct Reach {
    using Masks = std::unordered_map<int64_t, std::vector<bool>>;
    /// The tangents, in order, that reach each of them. Empty if there is one tangent only.
    Masks tangents;
    /// The gradients, in order, to which those lead that write or have effects; see
    /// JointTrace::gradients_behind.
    Masks gradients_behind;
    /// The tangents, in order, from which eager comes to each gradient; see
    /// JointTrace::tangents_leading_to.
    std::vector<std::vector<bool>> leading;
  };

  /// `edges`: see find_edges(). `donated`: for each saved value, whether nobody needs it after the
  /// last backward.
  BackwardProgram(Graph graph, Reach reach, const std::vector<size_t>& edges,
                  std::vector<bool> donated, aot::GraphCompiler compiler);

  /// Compiles for the case that all tangents are defined, with the layouts of the graph, and all
  /// gradients are wanted.
  void compile() { complete(); }
  /// What compile() makes, once it is asked for.
  PartPtr complete();
  /// Whether complete() is the backward for tangents like these, in the modes there are now.
  bool is_complete_for(const std::vector<at::Tensor>& tangents, const Mask& wanted,
                       const std::vector<TensorMeta>& layouts) const;
  /// The same backward for one choice of the sizes that its graph takes.
  std::shared_ptr<BackwardProgram> at(const std::vector<int64_t>& sizes) const;

  PartPtr variant(const std::vector<at::Tensor>& tangents, const Mask& wanted) override;
  size_t num_variants() const override;
  Graph graph_for(const Mask& defined, const Mask& wanted, Layouts layouts) const override;
  bool lies_as_traced(const Mask& defined, const Mask& wanted) const override;

 private:
  using Key = std::vector<int64_t>;

  PartPtr special(const std::vector<at::Tensor>& tangents, const Mask& wanted);
  PartPtr rare(const std::vector<at::Tensor>& tangents, const Mask& wanted);
  PartPtr find(const Key& key) const;
  PartPtr compile(const Graph& graph, const aot::GraphCompiler& compiler) const;
  PartPtr compile(const std::vector<at::Tensor>& tangents, const Mask& wanted) const;

  const Graph graph_;
  const Reach reach_;
  const std::vector<size_t> edges_;
  const std::vector<bool> donated_;  ///< for each input
  const aot::GraphCompiler compiler_;
  const int64_t deterministic_;  ///< the mode of the call that was compiled; see variant()
  std::atomic<PartPtr> complete_;
  mutable std::mutex mutex_;
  /// By which gradients are wanted, whether deterministic algorithms are, which tangents are
  /// defined, and their strides.
  std::map<Key, PartPtr> special_;
};

/// For each gradient of a joint graph, which edge it takes of the autograd node that makes it: the
/// engine follows these in order.
std::vector<size_t> find_edges(const JointGraph& joint);
/// The order in which eager would hand over the gradients of a backward graph. `donated`: for each
/// saved value, whether it is freed after its last use.
runtime::BackwardVariants::Order find_order(const Graph& backward, const std::vector<size_t>& edges,
                                            const std::vector<bool>& donated);

/// The backward graph for the case that some tangents are undefined and some gradients are not
/// wanted. Eager does not run what only undefined tangents reach; neither does this graph. Its
/// inputs and outputs are the same, but some outputs are undefined. `any_layout`: its values may be
/// laid out in another way than the graph says, as they are in eager, so it has to be traced again.
Graph without_tangents(const Graph& backward, const BackwardProgram::Reach& reach,
                       const BackwardProgram::Mask& defined, const BackwardProgram::Mask& wanted,
                       bool any_layout);

}  // namespace ahead::compiling
