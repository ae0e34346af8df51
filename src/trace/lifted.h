#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/StorageImpl.h>
#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/autograd/edge.h>

#include <optional>

#include "ahead/graph.h"
#include "base/libtorch.h"

namespace ahead::tracing {

/// How the autograd graph of the trace is tied to a tensor from outside it.
enum class GradLink : uint8_t {
  None,        ///< does not require grad
  OwnLeaf,     ///< the wrapper is a leaf of its own
  SharedLeaf,  ///< the wrapper shares the real leaf's accumulator: both spell the same variable
  Boundary,    ///< not a leaf outside: its history is cut at a boundary node
};

/// A tensor from outside the trace and the wrapper that stands for it inside.
struct Lifted {
  at::Tensor real;
  at::Tensor wrapper;   ///< functional, fake; what user code computes with
  at::Tensor contents;  ///< the fake tensor that the wrapper held at first
  /// The memory of the wrapper at first, which set_() may change. Not held, since resize_() must
  /// know whether somebody else has it; but no other memory will be at the same address.
  c10::weak_intrusive_ptr<c10::StorageImpl> memory{c10::intrusive_ptr<c10::StorageImpl>()};
  Value* value = nullptr;
  GradLink link = GradLink::None;
  NodePtr node;              ///< the accumulator or boundary; keeps it alive
  at::Tensor original_grad;  ///< real.grad() when it was lifted
  /// The own history of `real`, while `real` has the history of `wrapper`.
  std::optional<torch::autograd::Edge> original_history;
  bool is_reached = false;            ///< by the function itself, whether or not it is an argument
  bool storage_is_addressed = false;  ///< by as_strided: the wrapper keeps its place in memory
};

/// Whether set_() or resize_() gave this tensor from outside other memory.
inline bool has_other_memory(const Lifted& lifted) {
  return lifted.wrapper.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl() !=
         lifted.memory._unsafe_get_target();
}

}  // namespace ahead::tracing
