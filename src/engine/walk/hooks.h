#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/function.h>

#include <cstdint>
#include <functional>
#include <memory>

namespace ahead::engine {

/// What hangs on an autograd node, and how it gets into a graph.
struct Hooks {
  enum Kind : uint8_t {
    Before = 1,    ///< user code on what flows into the node: a call before it
    After = 2,     ///< user code after a leaf's `.grad` has changed: a call after it
    Outputs = 4,   ///< user code on what the node returns: a call after it
    Retained = 8,  ///< retain_grad(): an operator of the graph, unless there is a call before it
    Traced = 16,  ///< hooks that may be traced: part of the graph, unless there is a call before it
  };
  uint8_t kinds = 0;
  uint32_t count = 0;

  bool has(Kind kind) const { return (kinds & kind) != 0; }
  bool operator==(const Hooks& other) const { return kinds == other.kinds && count == other.count; }

  static Hooks of(torch::autograd::Node& node) {
    const bool has_any = !node.tensor_pre_hooks().empty() || !node.pre_hooks().empty() ||
                         !node.post_hooks().empty() || !node.retains_grad_hooks().empty() ||
                         node.tensor_post_acc_grad_hooks() != nullptr;
    return has_any ? find(node) : Hooks();
  }

 private:
  static Hooks find(torch::autograd::Node& node);
};

/// A hook that may be called with traced tensors, as std::function keeps it.
class TraceableHook {
 public:
  using Function = std::function<at::Tensor(const at::Tensor&)>;
  explicit TraceableHook(Function function);

  at::TensorBase operator()(const at::TensorBase& gradient) const;
  /// No two have the same.
  uint64_t id() const { return content_->id; }

 private:
  struct Content {
    Function function;
    uint64_t id;
  };
  std::shared_ptr<const Content> content_;
};

/// Calls visit(id) for each traceable hook on what flows into the node, in order.
void for_each_traceable_hook(torch::autograd::Node& node,
                             const std::function<void(uint64_t)>& visit);

/// Calls the hooks on what flows into the node, and those of retain_grad(), as LibTorch's engine
/// does.
torch::autograd::variable_list call_tensor_hooks(torch::autograd::Node& node,
                                                 torch::autograd::variable_list gradients);

}  // namespace ahead::engine
