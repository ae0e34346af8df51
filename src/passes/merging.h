#pragma once

#include <vector>

#include "ahead/graph.h"
#include "ops/facts/aliasing.h"

namespace ahead::passes {

/// Replaces values by equal ones, but never where somebody outside the graph could tell: by two
/// outputs, or an input and an output, that come to share memory.
class Merger {
 public:
  explicit Merger(Graph& graph);

  /// Whether `from` may be replaced by `to`, an earlier value that is known to hold the same.
  bool may_merge(const Value* from, const Value* to) const;
  /// Lets every user of `from` take `to` instead.
  void merge(Value* from, Value* to);

  const ops::Aliasing& aliasing() const { return aliasing_; }

 private:
  /// What is known of the values that may share memory with each other.
  struct Memory {
    bool is_returned = false;  ///< an output is among them
    bool is_given = false;     ///< an input is among them
    bool is_overwritten =
        false;  ///< a node writes to it, or the caller does after the graph has run
  };

  const Memory& memory(const Value* value) const { return memory_[aliasing_.group(value)]; }
  Memory& memory(const Value* value) { return memory_[aliasing_.group(value)]; }

  Graph& graph_;
  ops::Aliasing aliasing_;
  std::vector<Memory> memory_;  ///< by Aliasing::group()
};

/// Whether two values have the same dtype, device, sizes, strides and offset.
bool same_layout(const TensorMeta& a, const TensorMeta& b);

}  // namespace ahead::passes
