#pragma once

#include "fuzz/call.h"
#include "fuzz/input.h"

/// What the text of random programs uses besides LibTorch.
namespace ahead::fuzz {

/// Tanh whose gradient is wrong on purpose, so that one sees whether it was used.
class ScaledTanh : public torch::autograd::Function<ScaledTanh> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& input);
  static Tensors backward(torch::autograd::AutogradContext* context, Tensors gradients);
};

/// Two results, one of which has no gradient, from two inputs, one of which may need none.
class GatedProduct : public torch::autograd::Function<GatedProduct> {
 public:
  static Tensors forward(torch::autograd::AutogradContext* context, const at::Tensor& left,
                         const at::Tensor& right);
  static Tensors backward(torch::autograd::AutogradContext* context, Tensors gradients);
};

/// The identity whose backward doubles a buffer.
class ScalesBuffer : public torch::autograd::Function<ScalesBuffer> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& input,
                            const at::Tensor& buffer);
  static Tensors backward(torch::autograd::AutogradContext* context, Tensors gradients);
};

/// The same, and the gradient depends on what was written.
class ReadsScaledBuffer : public torch::autograd::Function<ReadsScaledBuffer> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& input,
                            const at::Tensor& buffer);
  static Tensors backward(torch::autograd::AutogradContext* context, Tensors gradients);
};

/// The identity whose backward writes to the gradient that it is given.
class ScalesGradient : public torch::autograd::Function<ScalesGradient> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& input);
  static Tensors backward(torch::autograd::AutogradContext* context, Tensors gradients);
};

/// Autocast for the CPU, with a cache of casts of its own.
class Autocast {
 public:
  Autocast();
  ~Autocast();
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  const bool before_;
};

/// Writes down a number and what a tensor holds (support/journal.h).
void note(int64_t label, const at::Tensor& tensor);
/// The same, and copies the tensor, without gradient.
at::Tensor noted_copy(int64_t label, const at::Tensor& tensor);
/// Squares it, without gradient, by an operator that is declared to have an effect.
at::Tensor noted_square(const at::Tensor& tensor);
/// The same numbers; the gradient is written down when it comes.
at::Tensor with_noted_gradient(int64_t label, const at::Tensor& tensor);
/// A layer with dropout as a checkpointed region.
at::Tensor checkpointed_layer(const at::Tensor& input, const at::Tensor& weight);
/// The same with autocast inside of the region.
at::Tensor checkpointed_autocast(const at::Tensor& input, const at::Tensor& weight);
/// A region inside of another one.
at::Tensor checkpointed_twice(const at::Tensor& input, const at::Tensor& weight);
/// A checkpointed region that notes, and draws, and has a gradient that is noted.
at::Tensor noted_checkpoint(int64_t label, const at::Tensor& tensor);

/// A number for an integer, of which only some are in a table.
double number_in_table(int64_t key);

/// Any numbers, made into indices of a dimension of this size.
at::Tensor indices(const at::Tensor& numbers, int64_t size);
/// The same, `count` of them, no two of them equal.
at::Tensor distinct(const at::Tensor& numbers, int64_t count, int64_t size);

/// Random numbers for a tensor, and then the same again: the generator is set to where it was.
at::Tensor drawn_twice(const at::Tensor& tensor);

/// The same numbers, with a hook that doubles the gradient.
at::Tensor with_double_gradient(const at::Tensor& tensor);
/// The same numbers, with a hook that adds to the gradient what another tensor says.
at::Tensor with_mixed_gradient(const at::Tensor& tensor, const at::Tensor& other);

/// The gradient of y's sum by x, itself differentiable; zeros if x is not used.
at::Tensor gradient_of(const at::Tensor& y, const at::Tensor& x);

}  // namespace ahead::fuzz
