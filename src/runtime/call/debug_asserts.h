#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ahead/graph.h"

namespace ahead::runtime {

/// What the programs of a compiled function take for granted, so that it can be checked on a call.
class DebugAsserts {
 public:
  /// The first `num_params_buffers` arguments are called parameters and buffers.
  DebugAsserts(const Graph& forward, const Graph* backward, int64_t num_params_buffers);

  /// Throws InternalError if a graph input is not what the graph was made for: the guards should
  /// have noticed.
  void check_inputs(const std::vector<at::Tensor>& inputs) const;
  /// Throws UserError if the forward executable returned something else than its graph says, or in
  /// memory that it should not share.
  void check_outputs(const std::vector<at::Tensor>& inputs,
                     const std::vector<at::Tensor>& outputs) const;
  /// Throws InternalError if a tangent is not what the backward was made for.
  void check_tangents(const std::vector<at::Tensor>& tangents) const;
  /// Throws UserError if the backward executable returned something else than its graph says.
  void check_gradients(const std::vector<at::Tensor>& gradients) const;

 private:
  struct Expected {
    std::string name;
    bool is_defined = true;
    TensorMeta meta;
    uint32_t memory = 0;  ///< Aliasing::group(): the same number where memory may be shared
  };

  std::vector<Expected> inputs_, outputs_, tangents_, gradients_;
};

/// A number that changes with high probability when an element of the tensor does.
uint64_t contents_hash(const at::Tensor& tensor);

}  // namespace ahead::runtime
