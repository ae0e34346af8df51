#include "fuzz/prelude.h"

#include <ATen/autocast_mode.h>

#include "ahead/checkpoint.h"
#include "ahead/effects.h"
#include "support/journal.h"

namespace ahead::fuzz {

using torch::autograd::AutogradContext;

at::Tensor ScaledTanh::forward(AutogradContext* context, const at::Tensor& input) {
  at::Tensor result = at::tanh(input) * 2;
  context->save_for_backward({result});
  return result;
}

Tensors ScaledTanh::backward(AutogradContext* context, Tensors gradients) {
  const at::Tensor result = context->get_saved_variables()[0];
  return {gradients[0] * (result * 3 + 1)};
}

Tensors GatedProduct::forward(AutogradContext* context, const at::Tensor& left,
                              const at::Tensor& right) {
  const at::Tensor gate = left > 0;
  context->save_for_backward({left, right, gate});
  context->mark_non_differentiable({gate});
  return {at::where(gate, left * right, right), gate};
}

Tensors GatedProduct::backward(AutogradContext* context, Tensors gradients) {
  const Tensors saved = context->get_saved_variables();
  const at::Tensor gated = gradients[0] * saved[2];
  return {gated * saved[1], gradients[0] + gated * saved[0]};
}

at::Tensor ScalesBuffer::forward(AutogradContext* context, const at::Tensor& input,
                                 const at::Tensor& buffer) {
  context->saved_data["buffer"] = buffer;
  return input.clone();
}

Tensors ScalesBuffer::backward(AutogradContext* context, Tensors gradients) {
  const at::NoGradGuard no_grad;
  context->saved_data["buffer"].toTensor().mul_(2);
  return {gradients[0] * 3, {}};
}

at::Tensor ReadsScaledBuffer::forward(AutogradContext* context, const at::Tensor& input,
                                      const at::Tensor& buffer) {
  context->saved_data["buffer"] = buffer;
  return input.clone();
}

Tensors ReadsScaledBuffer::backward(AutogradContext* context, Tensors gradients) {
  const at::NoGradGuard no_grad;
  const at::Tensor buffer = context->saved_data["buffer"].toTensor();
  buffer.mul_(0.5).add_(1);
  return {gradients[0] * buffer, {}};
}

at::Tensor ScalesGradient::forward(AutogradContext*, const at::Tensor& input) {
  return input.clone();
}

Tensors ScalesGradient::backward(AutogradContext*, Tensors gradients) {
  gradients[0].mul_(2);
  return gradients;
}

Autocast::Autocast() : before_(at::autocast::is_autocast_enabled(at::kCPU)) {
  at::autocast::set_autocast_enabled(at::kCPU, true);
  at::autocast::increment_nesting();
}

Autocast::~Autocast() {
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(at::kCPU, before_);
}

namespace {

at::Tensor layer(const at::Tensor& input, const at::Tensor& weight) {
  return at::dropout(at::gelu(input.matmul(weight)), 0.25, true).tanh();
}

}  // namespace

at::Tensor checkpointed_layer(const at::Tensor& input, const at::Tensor& weight) {
  return checkpoint(CheckpointPolicy::recompute_everything(), layer, input, weight);
}

at::Tensor checkpointed_autocast(const at::Tensor& input, const at::Tensor& weight) {
  const auto region = [](const at::Tensor& x, const at::Tensor& w) {
    const Autocast autocast;
    return layer(x, w) * x.sum();
  };
  return checkpoint(CheckpointPolicy::recompute_everything(), region, input, weight);
}

at::Tensor checkpointed_twice(const at::Tensor& input, const at::Tensor& weight) {
  const auto region = [](const at::Tensor& x, const at::Tensor& w) {
    return checkpointed_layer(x.sin(), w) + w.sum();
  };
  return checkpoint(CheckpointPolicy::recompute_everything(), region, input, weight);
}

void note(int64_t label, const at::Tensor& tensor) {
  journal::note(std::to_string(label), tensor);
}

at::Tensor noted_copy(int64_t label, const at::Tensor& tensor) {
  static const bool is_declared = (declare_effect("journal::copy"), true);
  static_cast<void>(is_declared);
  return journal::copy(std::to_string(label), tensor.detach());
}

at::Tensor noted_square(const at::Tensor& tensor) {
  static const bool is_declared = (declare_effect("journal::square"), true);
  static_cast<void>(is_declared);
  return journal::square(tensor.detach());
}

at::Tensor with_noted_gradient(int64_t label, const at::Tensor& tensor) {
  return journal::NoteGradient::apply(tensor, std::to_string(label));
}

at::Tensor noted_checkpoint(int64_t label, const at::Tensor& tensor) {
  const auto region = [label](const at::Tensor& x) {
    const at::Tensor dropped = at::dropout(x.sin(), 0.5, true);
    note(label, dropped);
    return with_noted_gradient(label + 1, dropped).tanh() * x;
  };
  return checkpoint(CheckpointPolicy::recompute_everything(), region, tensor);
}

double number_in_table(int64_t key) {
  switch (key) {
    case 2:
      return 0.5;
    case 5:
      return 3;
    case 9:
      return -1;
    default:
      return 1.25;
  }
}

at::Tensor indices(const at::Tensor& numbers, int64_t size) {
  return numbers.flatten().remainder(size);
}

at::Tensor distinct(const at::Tensor& numbers, int64_t count, int64_t size) {
  return (numbers.flatten()[0] + at::arange(count)).remainder(size);
}

at::Tensor drawn_twice(const at::Tensor& tensor) {
  at::Generator generator = at::globalContext().defaultGenerator(at::kCPU);
  const at::Tensor state = generator.get_state();
  const at::Tensor first = at::dropout(tensor, 0.5, true);
  generator.set_state(state);
  return first + 2 * at::dropout(tensor, 0.5, true);
}

at::Tensor with_double_gradient(const at::Tensor& tensor) {
  at::Tensor result = tensor * 1;
  if (result.requires_grad()) {
    result.register_hook([](const at::Tensor& gradient) { return gradient * 2; });
  }
  return result;
}

at::Tensor with_mixed_gradient(const at::Tensor& tensor, const at::Tensor& other) {
  at::Tensor result = tensor * 1;
  if (result.requires_grad()) {
    // Its own copy: to read what was written to since the forward is refused.
    result.register_hook([value = other.detach().clone()](const at::Tensor& gradient) {
      return gradient + value.sum().to(gradient.scalar_type());
    });
  }
  return result;
}

at::Tensor gradient_of(const at::Tensor& y, const at::Tensor& x) {
  at::AutoGradMode grad_mode(true);
  const at::Tensor gradient =
      torch::autograd::grad({y.sum()}, {x}, {}, /*retain_graph=*/true, /*create_graph=*/true,
                            /*allow_unused=*/true)[0];
  return gradient.defined() ? gradient : at::zeros_like(x);
}

}  // namespace ahead::fuzz
