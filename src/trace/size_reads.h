#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/SymInt.h>

#include <cstdint>
#include <functional>
#include <memory>

#include "ahead/graph.h"

namespace ahead::tracing {

class Tracer;

/// Integers that the traced function reads from tensors and keeps as c10::SymInt: each is a size of
/// the graph from the node on that reads it. What is decided by it is decided as for the value that
/// it has in this trace, and checked by a node of the graph in each run; as a plain number nobody
/// gets it.
class SizeReads {
 public:
  /// Finds out what a tensor of the graph holds in this trace; throws if that cannot be known.
  using Find = std::function<int64_t(const Value& number)>;

  explicit SizeReads(Tracer& tracer) : tracer_(tracer) {}

  /// Until then numbers are not read.
  void allow(Find find) { find_ = std::move(find); }
  /// Whether the number in this tensor may become a size.
  bool are_allowed(const at::Tensor& number) const;
  /// Whether any was read.
  bool any() const { return checks_ != nullptr; }
  /// The number in a tensor of the graph, as a size that the graph has from now on.
  c10::SymInt read(Value* number);
  /// Ends the trace: who asks sizes for decisions gets an error.
  void close();

 private:
  class Checks;

  Tracer& tracer_;
  Find find_;
  std::shared_ptr<Checks> checks_;
};

}  // namespace ahead::tracing
