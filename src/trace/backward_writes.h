#pragma once

#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/function.h>

#include <memory>
#include <vector>

#include "base/libtorch.h"
#include "trace/analysis/function_meta.h"
#include "trace/joint_trace.h"
#include "trace/open_trace.h"

namespace ahead::tracing {

/// Whether a traced tensor is one from outside, or a view of one.
bool is_from_outside(const Outside& outside, const at::Tensor& traced);

/// Adds the node that writes new contents to a graph input when a backward ends. It counts as
/// called by the autograd node that made the contents.
Node* add_backward_write(Graph& graph, Value* input, Value* contents);

/// What the backward of a traced function, that is a custom autograd function in it, writes to
/// tensors from outside and to the gradients that come in.
class BackwardWrites {
 public:
  BackwardWrites(OpenTrace& open, FunctionMeta& meta) : open_(open), meta_(meta) {}

  /// Watches the node of a custom function, before the backward is traced: what is written until it
  /// has run, it wrote.
  void watch(torch::autograd::Node& node);
  /// Watches the gradients that come in.
  void watch(const std::vector<at::Tensor>& tangents) { tangents_.assign(tangents); }
  /// Adds a write to the graph for each tensor that the traced backward wrote to. Throws
  /// Unsupported where a call cannot repeat that. `targets`: where gradients are wanted.
  void record(const torch::autograd::edge_list& targets, JointTrace& trace);

 private:
  class Hook;
  class GivenHook;

  /// Tensors that may be written to, each with the number of writes seen so far and the numbers,
  /// among those watched, of the nodes that wrote.
  struct Watched {
    std::vector<at::Tensor> tensors;
    std::vector<uint64_t> counts;
    std::vector<std::vector<size_t>> writers;

    void assign(const std::vector<at::Tensor>& traced);
    void note(size_t node);
  };

  void note(size_t node);
  void note_given(size_t node, const torch::autograd::variable_list& gradients);
  void check_given(size_t node, const torch::autograd::variable_list& gradients) const;
  bool is_sum_with_tangent(const Value* gradient) const;
  bool is_added_to_others(const Value* gradient) const;
  void record_input(size_t index, JointTrace& trace);
  void record_tangent(size_t index, JointTrace& trace);
  Node& add_write(Value* input, const at::Tensor& traced, const std::vector<size_t>& writers);
  uint64_t version_of(const at::Tensor& traced) const;
  int64_t sequence_of(size_t node) const;
  bool is_formula(const Node& node) const;
  bool is_read_by_formula(const Value* current) const;

  OpenTrace& open_;
  FunctionMeta& meta_;
  std::vector<NodePtr> nodes_;  ///< of custom functions
  Watched inputs_, tangents_;
  /// For each node, the gradients that it is given, as they are before it runs, with the number of
  /// writes. Empty if there is one tangent only.
  struct Given {
    size_t position;
    uint64_t count;
    const Value* value;
  };
  std::vector<std::vector<Given>> given_;
};

}  // namespace ahead::tracing
