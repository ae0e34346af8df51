#include "subclass/bridge.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>

#include "ahead/errors.h"
#include "base/libtorch.h"
#include "tensors/wrapper_impl.h"

namespace ahead::subclass {
namespace {

using torch::autograd::Node;
using torch::autograd::variable_list;
namespace impl = torch::autograd::impl;

/// The same memory and version as a tensor of its own, without history.
at::Tensor alias_without_history(const at::Tensor& tensor) {
  // Under a tracer, that has to know of it.
  if (tensor.key_set().has(c10::DispatchKey::Functionalize)) return tensor.detach();
  const c10::TensorImpl& real = *tensor.unsafeGetTensorImpl();
  if (tensor.is_inference()) return at::Tensor(real.shallow_copy_and_detach(0, true));
  return at::Tensor(real.shallow_copy_and_detach(real.version_counter(), true));
}

at::Tensor detached(const at::Tensor& tensor) {
  return tensor.requires_grad() ? alias_without_history(tensor) : tensor;
}

void append_leaves(const Recipe& recipe, std::vector<const Recipe*>& leaves) {
  if (recipe.is_plain()) return leaves.push_back(&recipe);
  for (const Recipe& inner : recipe.inner) append_leaves(inner, leaves);
}

/// A tensor that looks like this and is never read: it has one element of memory.
at::Tensor make_carrier(const WrapperLook& look) {
  const at::Tensor one = at::zeros({}, at::TensorOptions(look.dtype).device(look.device));
  at::AutoDispatchBelowADInplaceOrView no_view;
  return one.expand(look.sizes);
}

bool can_require_grad(const at::Tensor& tensor) {
  return tensor.is_floating_point() || tensor.is_complex();
}

/// Whether others have this tensor or its memory. A gradient that a leaf keeps is written to by the
/// next backward, and that nobody else has the wrapper says nothing of what is inside.
bool is_shared(const at::Tensor& gradient) {
  if (gradient.key_set().has(c10::DispatchKey::Functionalize)) return false;
  return gradient.use_count() > 1 || (gradient.has_storage() && gradient.storage().use_count() > 1);
}

/// Lets gradients that are to lie like the first one do so: views of the wrapper are taken by how
/// that lies.
void lay_out_alike(variable_list& gradients, const std::vector<const Recipe*>& leaves) {
  for (size_t i = 1; i < gradients.size(); ++i) {
    at::Tensor &first = gradients.front(), &other = gradients[i];
    if (leaves[i]->look != leaves.front()->look || other.strides() == first.strides()) continue;
    if (!first.is_non_overlapping_and_dense()) first = first.contiguous();
    other = other.new_empty_strided(other.sizes(), first.strides()).copy_(other);
  }
}

/// Behind the plain tensors that a tensor was taken apart into.
class ApartNode final : public Node {
 public:
  explicit ApartNode(std::shared_ptr<const Exchange> exchange) : exchange_(std::move(exchange)) {}

  variable_list apply(variable_list&& gradients) override {
    const bool has_any = std::any_of(gradients.begin(), gradients.end(),
                                     [](const at::Tensor& part) { return part.defined(); });
    if (!has_any) return variable_list(1);
    std::vector<const Recipe*> leaves;
    append_leaves(exchange_->gradient, leaves);
    for (size_t i = 0; i < gradients.size(); ++i) {
      if (gradients[i].defined()) {
        if (is_shared(gradients[i])) gradients[i] = gradients[i].clone();
        continue;
      }
      const WrapperLook& look = leaves[i]->look;
      gradients[i] = at::zeros(look.sizes, at::TensorOptions(look.dtype).device(look.device));
    }
    lay_out_alike(gradients, leaves);
    auto itself =
        std::make_shared<const Exchange>(Exchange{exchange_->gradient, exchange_->gradient});
    const at::Tensor* next = gradients.data();
    return {put_together(itself, next, coerce_gradient)};
  }
  std::string name() const override { return "ahead::ApartBackward"; }

 private:
  const std::shared_ptr<const Exchange> exchange_;
};

/// Behind a tensor that was put together of plain ones.
class TogetherNode final : public Node {
 public:
  TogetherNode(std::shared_ptr<const Exchange> exchange, OnOtherGradient on_other)
      : exchange_(std::move(exchange)), on_other_(std::move(on_other)) {}

  variable_list apply(variable_list&& gradients) override {
    at::Tensor gradient = std::move(gradients.at(0));
    const Recipe& expected = exchange_->gradient;
    // LibTorch's formulas have zeros without memory, which are plain whatever they are zeros of.
    if (gradient.defined() && !expected.is_plain() && gradient._is_zerotensor()) gradient.reset();
    if (gradient.defined() && !Recipe::of(gradient).is_like(expected))
      gradient = on_other_(*exchange_, gradient);
    if (!gradient.defined()) return variable_list(next_edges().size());
    auto itself = std::make_shared<const Exchange>(Exchange{Recipe::of(gradient), expected});
    variable_list parts;
    take_apart(gradient, itself, parts);
    return parts;
  }
  std::string name() const override { return "ahead::TogetherBackward"; }

 private:
  const std::shared_ptr<const Exchange> exchange_;
  const OnOtherGradient on_other_;
};

[[noreturn]] void refuse_gradient(const Exchange& exchange, const at::Tensor& gradient) {
  const std::string expected = exchange.gradient.str(), given = Recipe::of(gradient).str();
  if (!exchange.gradient.is_plain() && !tensors::is_wrapper(gradient)) {
    throw UserError("backward", "Expected a " + exchange.gradient.type->name +
                                    " tangent but got a plain Tensor. The result is a " + expected +
                                    ": pass such a gradient.");
  }
  throw UserError("backward",
                  "During the backward, we encountered a tensor subclass where we guessed its "
                  "metadata incorrectly. Expected " +
                      expected + ", got " + given +
                      ". Pass such a gradient, or let the class implement "
                      "coerce_same_metadata_as_tangent or coerce_tangent.");
}

}  // namespace

at::Tensor coerce_gradient(const Exchange& exchange, const at::Tensor& gradient) {
  const Recipe& expected = exchange.gradient;
  if (expected.is_plain() || !tensors::is_wrapper(gradient)) refuse_gradient(exchange, gradient);
  const at::Tensor coerced =
      tensors::as_wrapper(gradient).inside()->coerce_same_metadata_as_tangent(
          gradient, *expected.type, expected.metadata);
  if (!coerced.defined() || !Recipe::of(coerced).is_like(expected))
    refuse_gradient(exchange, gradient);
  return coerced;
}

void take_apart(const at::Tensor& tensor, const std::shared_ptr<const Exchange>& exchange,
                std::vector<at::Tensor>& plain) {
  const bool has_carriers = exchange->has_carriers();
  if (exchange->tensor.is_plain() && !has_carriers) return plain.push_back(tensor);
  const size_t first = plain.size();
  append_plain(tensor, plain);
  if (!tensor.requires_grad()) {
    // A call may give them a history, which the tensors inside of a wrapper never have.
    for (size_t i = first; i < plain.size() && at::GradMode::is_enabled(); ++i)
      if (can_require_grad(plain[i])) plain[i] = alias_without_history(plain[i]);
    return;
  }
  const NodePtr node = make_autograd_node<ApartNode>(exchange);
  node->set_next_edges({impl::gradient_edge(tensor)});
  const auto tie = [&](at::Tensor& part) {
    if (!can_require_grad(part)) {
      node->add_input_metadata(Node::undefined_input());
      return;
    }
    impl::set_gradient_edge(part, {node, node->add_input_metadata(part)});
  };
  if (has_carriers) {
    for (size_t i = first; i < plain.size(); ++i) plain[i] = detached(plain[i]);
    std::vector<const Recipe*> leaves;
    append_leaves(exchange->gradient, leaves);
    for (const Recipe* leaf : leaves) tie(plain.emplace_back(make_carrier(leaf->look)));
    return;
  }
  for (size_t i = first; i < plain.size(); ++i) {
    if (can_require_grad(plain[i])) plain[i] = alias_without_history(plain[i]);
    tie(plain[i]);
  }
}

at::Tensor put_together(const std::shared_ptr<const Exchange>& exchange, const at::Tensor*& next,
                        const OnOtherGradient& on_other) {
  const size_t num_plain = exchange->tensor.num_plain();
  std::vector<at::Tensor> plain;
  for (size_t i = 0; i < num_plain; ++i) plain.push_back(detached(next[i]));
  const at::Tensor* sources = exchange->has_carriers() ? next + num_plain : next;
  const size_t num_sources = exchange->gradient.num_plain();
  next = sources + num_sources;
  const bool requires_grad = std::any_of(
      sources, sources + num_sources, [](const at::Tensor& part) { return part.requires_grad(); });
  // The history is that of a tensor of its own.
  if (requires_grad && exchange->tensor.is_plain()) plain[0] = alias_without_history(plain[0]);
  const at::Tensor* from = plain.data();
  at::Tensor made = assemble(exchange->tensor, from);
  if (!requires_grad) return made;
  const NodePtr node = make_autograd_node<TogetherNode>(exchange, on_other);
  torch::autograd::edge_list edges;
  for (size_t i = 0; i < num_sources; ++i)
    edges.push_back(sources[i].requires_grad() ? impl::gradient_edge(sources[i])
                                               : torch::autograd::Edge());
  node->set_next_edges(std::move(edges));
  impl::set_gradient_edge(made, {node, node->add_input_metadata(made)});
  return made;
}

void note_written(const at::Tensor& tensor, const std::shared_ptr<const Exchange>& exchange,
                  const at::Tensor* plain, int64_t writes) {
  if (!tensor.is_inference()) {
    for (int64_t i = 0; i < writes; ++i) impl::bump_version(tensor);
  }
  const bool is_tied =
      std::all_of(plain, plain + exchange->tensor.num_plain(), [](const at::Tensor& part) {
        return !part.requires_grad() ||
               dynamic_cast<ApartNode*>(impl::gradient_edge(part).function.get()) != nullptr;
      });
  if (is_tied) return;
  const NodePtr node = make_autograd_node<TogetherNode>(exchange, coerce_gradient);
  torch::autograd::edge_list edges;
  for (size_t i = 0; i < exchange->tensor.num_plain(); ++i)
    edges.push_back(plain[i].requires_grad() ? impl::gradient_edge(plain[i])
                                             : torch::autograd::Edge());
  node->set_next_edges(std::move(edges));
  impl::rebase_history(tensor, {node, node->add_input_metadata(tensor)});
}

}  // namespace ahead::subclass
