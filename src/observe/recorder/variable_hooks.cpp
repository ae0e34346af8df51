#include "observe/recorder/variable_hooks.h"

#include <ATen/core/VariableHooksInterface.h>

#include "observe/recorder/recorder.h"

namespace ahead::observe {
namespace {

using at::TensorBase;
using at::impl::VariableHooksInterface;
using Hook = HookClosure::Function;

/// Tells the recorder of hooks and of other memory, and passes all calls on to LibTorch's own.
class VariableHooks final : public VariableHooksInterface {
 public:
  explicit VariableHooks(VariableHooksInterface& behind) : behind_(behind) {}

  unsigned _register_hook(const TensorBase& tensor, Hook hook) const override {
    Recorder* recorder = Recorder::current();
    if (recorder == nullptr) return behind_._register_hook(tensor, std::move(hook));
    auto registered = std::make_shared<const Hook>(std::move(hook));
    const unsigned position = behind_._register_hook(
        tensor, [registered](const TensorBase& gradient) { return (*registered)(gradient); });
    recorder->add_hook(at::Tensor(tensor), registered, position);
    return position;
  }
  void remove_hook(const TensorBase& tensor, unsigned position) const override {
    behind_.remove_hook(tensor, position);
    if (Recorder* recorder = Recorder::current())
      recorder->remove_hook(at::Tensor(tensor), position);
  }
  void set_data(const TensorBase& tensor, const TensorBase& data) const override {
    if (Recorder* recorder = Recorder::current())
      recorder->refuse("set_data: the function gives a tensor other memory");
    behind_.set_data(tensor, data);
  }
  void retain_grad(const TensorBase& tensor) const override {
    Recorder* recorder = tensor.is_leaf() ? nullptr : Recorder::current();
    const bool is_new = recorder != nullptr && !behind_.retains_grad(tensor);
    behind_.retain_grad(tensor);
    if (is_new) recorder->retain_grad(at::Tensor(tensor));
  }

  TensorBase tensor_data(const TensorBase& tensor) const override {
    return behind_.tensor_data(tensor);
  }
  TensorBase variable_data(const TensorBase& tensor) const override {
    return behind_.variable_data(tensor);
  }
  const NodePtr& grad_fn(const TensorBase& tensor) const override {
    return behind_.grad_fn(tensor);
  }
  bool is_view(const TensorBase& tensor) const override { return behind_.is_view(tensor); }
  const TensorBase& base(const TensorBase& tensor) const override { return behind_.base(tensor); }
  const std::string& name(const TensorBase& tensor) const override { return behind_.name(tensor); }
  bool is_leaf(const TensorBase& tensor) const override { return behind_.is_leaf(tensor); }
  int64_t output_nr(const TensorBase& tensor) const override { return behind_.output_nr(tensor); }
  TensorBase data(const TensorBase& tensor) const override { return behind_.data(tensor); }
  int64_t _version(const TensorBase& tensor) const override { return behind_._version(tensor); }
  bool retains_grad(const TensorBase& tensor) const override {
    return behind_.retains_grad(tensor);
  }
  void _backward(const at::Tensor& tensor, at::TensorList inputs,
                 const std::optional<at::Tensor>& gradient, std::optional<bool> keep_graph,
                 bool create_graph) const override {
    behind_._backward(tensor, inputs, gradient, keep_graph, create_graph);
  }
  void requires_grad_(const TensorBase& tensor, bool requires_grad) const override {
    behind_.requires_grad_(tensor, requires_grad);
  }
  void basic_autograd_not_implemented_fallback(const c10::OperatorHandle& op,
                                               c10::DispatchKeySet keys,
                                               torch::jit::Stack* stack) const override {
    behind_.basic_autograd_not_implemented_fallback(op, keys, stack);
  }
  std::optional<c10::ScalarType> grad_dtype(const TensorBase& tensor) const override {
    return behind_.grad_dtype(tensor);
  }
  void set_grad_dtype(const TensorBase& tensor,
                      const std::optional<c10::ScalarType>& dtype) const override {
    behind_.set_grad_dtype(tensor, dtype);
  }

 private:
  VariableHooksInterface& behind_;
};

}  // namespace

void install_variable_hooks() {
  at::impl::SetVariableHooks(new VariableHooks(*at::impl::GetVariableHooks()));
}

}  // namespace ahead::observe
