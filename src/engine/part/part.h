#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ahead/executable.h"
#include "ahead/graph.h"
#include "engine/gradients.h"
#include "engine/walk/backward.h"
#include "ir/sizes/size_guards.h"

namespace ahead::engine {

/// A run of steps compiled into one graph.
struct Part {
  /// What waits at a place; empty: nothing.
  struct Expected {
    size_t place;
    std::optional<TensorMeta> gradient;
    /// In a graph for changing sizes: the sizes are those of the place, whatever these are, and the
    /// strides follow from them row by row, or are those above.
    bool is_contiguous = false;
  };
  /// What hooks unpacked for one of the steps.
  struct Unpacked {
    size_t hooked;  ///< among Backward::hooked()
    uint64_t keys;  ///< for the dispatcher
    /// In a graph for changing sizes these may be symbols.
    TensorMeta tensor;
  };
  /// A tensor that the graph takes: one that nodes hold, one that hooks unpacked, a gradient that
  /// waits, a leaf, the `.grad` of a leaf, or the sizes that change.
  struct Argument {
    enum class Kind : uint8_t { Input, Unpacked, Gradient, Leaf, Grad, Sizes };
    Kind kind;
    size_t index;  ///< among inputs, hooked tensors, places or steps
  };
  /// Where a tensor that the graph returns goes.
  struct Destination {
    enum class Kind : uint8_t {
      Place,
      Output,  ///< what the last node returns, of which hooks are told before it is passed on
      Result,
      NewGrad,      ///< the `.grad` of a leaf that had none
      ReplacedGrad  ///< the `.grad` of a leaf, made of the one that it had
    };
    Kind kind;
    size_t index;  ///< among places, what the node returns, results or steps
  };
  /// A step that adds to the `.grad` of a leaf.
  struct Accumulation {
    size_t step;
    /// Why the graph does not do it, but the leaf's own node afterwards; empty: the graph does.
    std::string reason;
    at::ScalarType dtype;  ///< of the leaf
    at::Device device;
    int64_t dim;
    /// What the `.grad` has to be like, at the place of the leaf's gradient.
    Expected grad;

    bool is_deferred() const { return !reason.empty(); }
  };

  /// Made for a backward with create_graph: run so that what it returns has a history.
  bool with_history = false;
  size_t begin = 0;  ///< the first step
  size_t end = 0;    ///< one after the last
  /// All places that the steps read or add to.
  std::vector<Expected> expected;
  std::vector<Unpacked> unpacked;
  std::vector<Argument> arguments;
  std::vector<Destination> destinations;
  std::vector<Accumulation> accumulations;
  /// The steps of those that the graph does in place, in order.
  std::vector<size_t> adds_to;
  /// Offsets of the arguments into their storage, if the graph depends on them.
  std::vector<int64_t> offsets;
  /// What the graph depends on, if it is for changing sizes; null: it is for fixed ones.
  std::shared_ptr<const SizeGuards> guards;
  /// All of these, if others may come too; empty: the program is for no others.
  std::vector<int64_t> fixed_sizes;
  std::shared_ptr<const Graph> graph;
  aot::Executable run;
};

/// Whether the part was made for gradients like those that wait, for what was unpacked, and for
/// such sizes.
bool is_for(const Part& part, const Gradients& gradients, const Backward& backward,
            const std::vector<int64_t>& sizes);

/// Whether hooks of earlier nodes gave some to these. There are none before the first part, which
/// comes after the roots.
bool has_new_hooks(const Part& part, const Backward& backward);

/// Eager looks at saved tensors when it reaches their node, and notices what hooks wrote to them.
/// Graphs read them at once. So where something was or will be written, the nodes run one by one.
bool is_unwritten(const Part& part, const Gradients& gradients, const Backward& backward);

/// What the graph is given. A tensor that nobody else holds is the graph's to free after its last
/// use.
std::vector<at::Tensor> take_arguments(const Part& part, Gradients& gradients, Backward& backward,
                                       const std::vector<int64_t>& sizes);

}  // namespace ahead::engine
