#pragma once

#include <c10/util/SmallVector.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "ahead/executable.h"
#include "ahead/graph.h"

namespace ahead::runtime {

/// The backward of a compiled function, as its autograd node sees it. Which tangents are defined,
/// how they are laid out, and which gradients are wanted decides what eager would compute: each
/// combination is a variant of its own. Several threads may use it at once.
class BackwardVariants {
 public:
  virtual ~BackwardVariants() = default;

  using Mask = c10::SmallVector<bool, 8>;

  /// The backward for one combination of tangents and wanted gradients.
  struct Part {
    aot::Executable run;
    /// For each saved value, whether it is needed; the others may be undefined.
    std::vector<bool> needs;
    /// The layout in which it expects each tangent.
    std::vector<TensorMeta> tangents;
    /// For each of its arguments, whether it writes to it. Empty: to none.
    std::vector<bool> writes = {};
  };
  using PartPtr = std::shared_ptr<const Part>;

  /// The backward, on saved values followed by tangents, for tangents like these. Results that are
  /// not wanted, or that depend on undefined tangents only, are undefined.
  virtual PartPtr variant(const std::vector<at::Tensor>& tangents, const Mask& wanted) = 0;
  /// How many there are so far.
  virtual size_t num_variants() const = 0;

  /// How a graph expects tangents: laid out as in the trace, or in any way, if its operators are
  /// called one by one.
  enum class Layouts : uint8_t { AsTraced, Any };
  /// The graph for one combination of defined tangents and wanted gradients. `sizes()` are its
  /// symbols, with the input Sizes, if there are any.
  virtual Graph graph_for(const Mask& defined, const Mask& wanted, Layouts layouts) const = 0;
  /// Whether all gradients lie as in the trace if the tangents do. Where one of several that are
  /// added up is undefined, the others take the place of the sum as they lie.
  virtual bool lies_as_traced(const Mask& defined, const Mask& wanted) const = 0;

  /// The gradients, by number, in the order in which eager would hand them over.
  struct Order {
    std::vector<int32_t> places;
    /// For each, whether what was made up to it has to be handed over before more is made, lest
    /// more memory is in use at once than in eager.
    std::vector<bool> is_end;
  };
  const Order& order() const { return order_; }
  /// A number that no other backward of this process has or had, but those of the same program for
  /// other sizes.
  uint64_t id() const { return id_; }
  /// Whether gradients may be sparse.
  bool makes_sparse() const { return makes_sparse_; }
  /// The sizes for which this is the backward of a program for many; none: it is no such.
  const std::vector<int64_t>& sizes() const { return sizes_; }
  /// The layout in which each tangent is expected where nothing is known of it.
  const std::vector<TensorMeta>& tangents() const { return tangents_; }
  /// The layout in which each saved value is expected.
  const std::vector<TensorMeta>& saved() const { return saved_; }

 protected:
  /// The graph takes Saved values, then Tangents and maybe Sizes, and returns gradients.
  BackwardVariants(const Graph& graph, Order order);
  /// The same backward as another one, where sizes are these.
  BackwardVariants(const BackwardVariants& general, std::vector<int64_t> sizes);

 private:
  const uint64_t id_;
  const std::vector<int64_t> sizes_;
  const Order order_;
  const bool makes_sparse_;
  std::vector<TensorMeta> saved_, tangents_;
};

}  // namespace ahead::runtime
