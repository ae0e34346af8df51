#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "ahead/errors.h"
#include "ahead/executable.h"
#include "ahead/graph.h"
#include "ahead/trace.h"
#include "base/autocast.h"
#include "base/culprit.h"
#include "ir/sizes/layout.h"

namespace ahead::tracing {

/// What one result of a traced function is to the caller.
struct ResultFacts {
  enum class Kind : uint8_t {
    Undefined,
    Fresh,         ///< memory of its own, as far as the caller can tell
    Input,         ///< the very tensor that came in as graph input `base`
    Result,        ///< the very tensor that is result `base`
    ViewOfInput,   ///< a view of graph input `base`
    ViewOfResult,  ///< a view of result `base`
    ViewOfBase,    ///< a view of IntermediateBase `base`
    CustomView,    ///< memory of graph input `base` with a history other than a view has
  };
  Kind kind = Kind::Undefined;
  int32_t base = -1;
  bool requires_grad = false;
  /// Requires grad, but was made by no operator that has a gradient.
  bool is_leaf = true;
  /// Made in inference mode, which the function had switched on.
  bool is_inference = false;
  bool is_no_grad_view = false;  ///< a view made without grad mode, or a view of such a view
  /// A multi-output view (split), or a view of one.
  bool is_one_of_several = false;
  /// It was set_() to the memory that it has: neither a view nor of one version with it.
  bool was_set = false;
  /// A view whose history is an as_strided of its base, since the base was written to.
  bool is_strided_view = false;
  /// For a chain of views from base to result, some of them made without grad mode: how many of the
  /// last views were made with grad mode. Else 0.
  uint32_t history_length = 0;
  /// Its version counter, if the function made the result or its base.
  uint32_t version = 0;
  /// Equal for results that autograd knows as views of one tensor, or as that tensor.
  const void* base_identity = nullptr;
  /// The result in the graph, and for a view its base in the graph.
  Value* value = nullptr;
  Value* root = nullptr;
};

/// What a traced function did to one of its graph inputs.
struct InputFacts {
  /// By how much the function raised its version counter.
  uint64_t writes = 0;
  /// The writes are part of its history: a gradient flows through them.
  bool seen_by_autograd = false;
  /// Its layout afterwards, if its sizes, strides or offset were changed in place.
  std::optional<TensorMeta> new_geometry;
  /// The memory that set_() gave it: what a result with the slot Output `index` would be. Or what
  /// its own memory holds, which resize_() made larger.
  struct NewMemory {
    int32_t index;
    ResultFacts facts;
    bool is_grown = false;
  };
  std::optional<NewMemory> new_memory;
  /// Whether it requires grad afterwards, if the function changed that and nothing else.
  std::optional<bool> new_requires_grad;
  /// The graph input whose `.grad` this one was; -1: none.
  int32_t grad_of = -1;
  /// An argument that the function reached otherwise too: it has to be this very tensor.
  at::Tensor reached;
  /// The argument it repeats; -1: none.
  int32_t same_as = -1;
  /// A custom autograd function writes to it when the backward runs: the graph has an aten.copy_.
  struct BackwardWrite {
    uint64_t version_bumps = 0;
    /// Gradient formulas read it as well, and must find it as it was when the forward had run.
    bool is_checked = false;
  };
  std::optional<BackwardWrite> backward_write;
};

/// A function traced for compilation. Graph outputs are MutatedInput, Output (results of
/// Kind::Fresh and CustomView, and after these new memory of inputs), IntermediateBase, GradOf and
/// AccumulatedGrad; there is a Tangent for each of the first three through which a gradient flows.
struct JointTrace {
  Graph graph;
  std::vector<InputFacts> inputs;
  std::vector<ResultFacts> results;
  /// An autograd node whose gradient is not that of the operators it stands for: a custom function,
  /// or a node with hooks.
  std::optional<Culprit> opaque_gradient;
  /// An opaque node whose gradient comes in several parts, so that it can see which parts are
  /// undefined.
  std::optional<Culprit> many_part_gradient;
  /// An operator that wrote to a differentiable tensor without autograd's knowledge, or made a view
  /// of a tensor so written, so that calling the graph's operators gives another history than the
  /// function has.
  std::optional<Culprit> hidden_write;
  /// The function itself takes gradients. They depend on which tensors from outside were computed
  /// from which.
  bool differentiates = false;
  /// For each autograd node, by Node::sequence, the tangents in order that its gradient comes from.
  /// Empty if there is one tangent only.
  std::unordered_map<int64_t, std::vector<bool>> reaching_tangents;
  /// For each autograd node whose backward has an effect, and for each custom autograd function
  /// where some backward writes to something, by Node::sequence: the outputs GradOf in order to
  /// which the gradients lead that it makes. Eager runs it only if one of these is wanted.
  std::unordered_map<int64_t, std::vector<bool>> gradients_behind;
  /// For each output GradOf, in order, the tangents in order from which eager's engine comes to
  /// that input, whatever gradient it brings. Empty if there is one tangent only.
  std::vector<std::vector<bool>> tangents_leading_to;
  /// For each tangent, in order, the tangents from which eager's engine runs a node that it runs
  /// from this tangent, too, itself among them. Empty if these are always all.
  std::vector<std::vector<bool>> tangents_sharing;
  /// For each tangent, in order, the other tangents from which eager's engine passes through the
  /// result of this one: their results were computed from it. Empty if there are none.
  std::vector<std::vector<bool>> tangents_passing_through;
  /// A gradient that comes in and that the backward writes to.
  struct TangentWrite {
    int32_t tangent;  ///< its number among the tangents
    uint64_t version_bumps;
  };
  std::vector<TangentWrite> tangent_writes;
  /// Whether one of `inputs` has a backward_write.
  bool writes_to_inputs = false;
  bool has_backward_writes() const { return writes_to_inputs || !tangent_writes.empty(); }
  /// An operator of the backward for which autocast cast a tensor.
  std::optional<Culprit> cast_in_backward;
  /// An operator of the backward for which autocast would cast a tensor, were it on.
  std::optional<Culprit> castable_in_backward;
  /// Grad mode as the function left it.
  bool grad_mode_after = true;
};

/// A function writes to a tensor from outside that shares its memory with another one.
class AliasedWrite : public Unsupported {
 public:
  using Unsupported::Unsupported;
};

/// A function changes the shape or the storage of a tensor from outside.
class ReshapedInput : public Unsupported {
 public:
  using Unsupported::Unsupported;
};

/// Traces a function without its gradient, for inputs whose layout may change: one layout for each,
/// nothing for those that are fixed. What is decided by sizes is noted; without guards no size
/// changes.
Graph trace_symbolic(const aot::FlatFunction& function, const std::vector<at::Tensor>& inputs,
                     const std::vector<std::optional<Layout>>& layouts,
                     const std::shared_ptr<SizeGuards>& guards);

}  // namespace ahead::tracing
