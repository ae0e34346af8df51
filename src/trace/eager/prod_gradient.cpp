#include "trace/eager/prod_gradient.h"

#include <ATen/WrapDimUtils.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/where.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/generated/Functions.h>
#include <torch/csrc/autograd/saved_variable.h>

#include "base/libtorch.h"

namespace ahead::tracing {
namespace {

using at::Tensor;
using torch::autograd::SavedVariable;
using torch::autograd::variable_list;

/// What may be added to anything without changing a bit.
at::Scalar neutral(at::ScalarType dtype) {
  return at::isComplexType(dtype) ? at::Scalar(c10::complex<double>(-0.0, -0.0)) : at::Scalar(-0.0);
}

/// The gradient of what came through a gate.
class GateBackward final : public torch::autograd::Node {
 public:
  explicit GateBackward(Tensor is_open) : is_open_(std::move(is_open)) {}
  variable_list apply(variable_list&& gradients) override;
  std::string name() const override { return "GateBackward"; }

 private:
  const Tensor is_open_;
};

/// The tensor where the gate is open, and the number where it is closed. What comes back through a
/// closed gate, be it NaN, changes no gradient.
Tensor pass_gate(const Tensor& tensor, const Tensor& is_open, const at::Scalar& otherwise) {
  if (!at::GradMode::is_enabled() || !tensor.requires_grad()) return tensor;
  const Tensor passed = at::where(is_open, tensor, otherwise);
  const NodePtr node = make_autograd_node<GateBackward>(is_open);
  node->set_next_edges(torch::autograd::collect_next_edges(tensor));
  torch::autograd::set_history(passed, node);
  return passed;
}

variable_list GateBackward::apply(variable_list&& gradients) {
  const Tensor& gradient = gradients[0];
  if (!gradient.defined()) return {Tensor()};
  const at::Scalar closed = neutral(gradient.scalar_type());
  if (at::GradMode::is_enabled() && gradient.requires_grad())
    return {pass_gate(gradient, is_open_, closed)};
  return {at::where(is_open_, gradient, closed)};
}

/// The products of all elements before each one.
Tensor products_before(const Tensor& input, int64_t dim) {
  std::vector<int64_t> first = input.sizes().vec();
  first[static_cast<size_t>(dim)] = 1;
  const Tensor others = input.narrow(dim, 0, input.size(dim) - 1);
  return at::cat({at::ones(first, input.options()), others}, dim).cumprod(dim);
}

/// What it takes twice is the same tensor, through gates of its own: so eager adds up its
/// gradients.
Tensor gradient_by_products(const Tensor& gradient, const Tensor& input, const Tensor& again,
                            int64_t dim) {
  if (input.size(dim) == 1) return gradient;
  const Tensor before = products_before(input, dim);
  const Tensor after = products_before(again.flip(dim), dim).flip(dim);
  return gradient * (before * after).conj();
}

Tensor gradient_by_division(const Tensor& gradient, const Tensor& input, const Tensor& result) {
  return gradient * (result / input).conj();
}

class ProdBackward final : public torch::autograd::Node {
 public:
  ProdBackward(const Tensor& input, const Tensor& result, std::optional<ProdDimension> over)
      : input_(input, false), result_(result, true), over_(over) {}

  variable_list apply(variable_list&& gradients) override {
    if (!gradients[0].defined()) return {Tensor()};
    const Tensor input = input_.unpack().to(gradients[0].scalar_type());
    Tensor gradient = gradients[0], result = result_.unpack(getptr());
    if (over_ && !over_->keepdim) {
      const int64_t dim = at::maybe_wrap_dim(over_->dim, input.dim());
      gradient = gradient.unsqueeze(dim);
      result = result.unsqueeze(dim);
    }
    return {of_input(gradient, input, result)};
  }

  std::string name() const override { return over_ ? "ProdBackward1" : "ProdBackward0"; }

  void release_variables() override {
    input_.reset_data();
    result_.reset_data();
  }

 private:
  Tensor of_input(const Tensor& gradient, const Tensor& input, const Tensor& result) const {
    if (input.numel() == 0) return gradient_by_division(gradient, input, result);
    const Tensor is_zero = input == 0;
    const Tensor any_zero = is_zero.any(), no_zero = any_zero.logical_not();
    const auto gated = [](const Tensor& tensor, const Tensor& is_open) {
      return pass_gate(tensor, is_open, 1);
    };
    // Gates made later are asked for gradients earlier: division's, as the first to be added up,
    // decide the layout.
    const Tensor once = gated(input, any_zero), again = gated(input, any_zero);
    Tensor multiplied = by_products(gated(gradient, any_zero), once, again);
    const Tensor divided = gradient_by_division(gated(gradient, no_zero), gated(input, no_zero),
                                                gated(result, no_zero));
    // Eager does not look at the others then, which may be NaN.
    if (!over_ && !at::GradMode::is_enabled())
      multiplied = at::where(is_zero.sum() > 1, 0, multiplied);
    return at::where(no_zero, divided, multiplied);
  }

  Tensor by_products(const Tensor& gradient, const Tensor& input, const Tensor& again) const {
    if (over_)
      return gradient_by_products(gradient, input, again,
                                  at::maybe_wrap_dim(over_->dim, input.dim()));
    const auto flat = [](const Tensor& tensor) { return tensor.contiguous().view(-1); };
    return gradient_by_products(gradient, flat(input), flat(again), 0).view(input.sizes());
  }

  SavedVariable input_, result_;
  const std::optional<ProdDimension> over_;
};

template <class Original>
void replace(const Tensor& result, std::optional<ProdDimension> over) {
  const NodePtr history = result.grad_fn();
  const auto* original = dynamic_cast<const Original*>(history.get());
  if (original == nullptr) return;
  const Tensor input = original->self_.unpack();
  if (input.dim() == 0) return;
  const NodePtr node = make_autograd_node<ProdBackward>(input, result, over);
  node->set_next_edges(torch::autograd::edge_list(original->next_edges()));
  torch::autograd::set_history(result, node);
}

}  // namespace

void follow_prod_gradient(const Tensor& result, std::optional<ProdDimension> over) {
  if (over) {
    replace<torch::autograd::generated::ProdBackward1>(result, over);
  } else {
    replace<torch::autograd::generated::ProdBackward0>(result, over);
  }
}

}  // namespace ahead::tracing
