#pragma once

#include <vector>

#include "ahead/graph.h"
#include "ops/facts/aliasing.h"

namespace ahead::native {

/// Which nodes of a graph may write to which memory. Knows the nodes and values that were there
/// when it was made; values that came since are taken for memory that nobody writes to.
class Writes {
 public:
  explicit Writes(const Graph& graph);

  struct Writer {
    size_t position;               ///< among the nodes of the graph
    std::vector<uint32_t> memory;  ///< that it may write to; see ops::Aliasing::group()
  };
  const std::vector<Writer>& writers() const { return writers_; }
  bool may_write(const Writer& writer, const Value* value) const;
  /// Whether anything may write to the value after the node at `first` and before the one at
  /// `last`.
  bool may_change(const Value* value, size_t first, size_t last) const;
  bool may_ever_change(const Value* value) const;

 private:
  const size_t num_values_;
  std::vector<Writer> writers_;
  ops::Aliasing aliasing_;
};

}  // namespace ahead::native
