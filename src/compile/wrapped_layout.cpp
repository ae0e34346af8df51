#include "compile/wrapped_layout.h"

#include <algorithm>

#include "tensors/wrapper_impl.h"

namespace ahead::detail {
namespace {

using subclass::Exchange;
using subclass::Recipe;

std::shared_ptr<const Exchange> made_alike(const at::Tensor& tensor) {
  Recipe recipe = Recipe::of(tensor);
  return std::make_shared<const Exchange>(Exchange{recipe, recipe});
}

bool is_wrapped_view(const at::Tensor& tensor) {
  return tensors::is_wrapper(tensor) && !tensor.is_inference() && tensor.is_view();
}

}  // namespace

bool has_wrappers(const std::vector<at::Tensor>& tensors) {
  return std::any_of(tensors.begin(), tensors.end(), [](const at::Tensor& tensor) {
    return tensor.defined() && tensors::is_wrapper(tensor);
  });
}

FlatTree with_plain_leaves(const FlatTree& inputs) {
  FlatTree plain{{}, inputs.spec};
  for (const at::Tensor& leaf : inputs.leaves) subclass::append_plain(leaf, plain.leaves);
  return plain;
}

WrappedLayout::WrappedLayout(const std::vector<at::Tensor>& outer) {
  for (size_t i = 0; i < outer.size(); ++i) {
    first_.push_back(i);
    for (size_t k = 0; k < i; ++k) {
      if (outer[k].is_same(outer[i])) first_[i] = std::min(first_[i], k);
    }
    exchanges_.push_back(made_alike(outer[i]));
    requires_grad_.push_back(outer[i].requires_grad());
    is_view_.push_back(is_wrapped_view(outer[i]));
  }
}

bool WrappedLayout::holds(const std::vector<at::Tensor>& outer) const {
  if (outer.size() != exchanges_.size()) return false;
  for (size_t i = 0; i < outer.size(); ++i) {
    if (!exchanges_[i]->tensor.holds(outer[i]) || requires_grad_[i] != outer[i].requires_grad() ||
        is_view_[i] != is_wrapped_view(outer[i]))
      return false;
    for (size_t k = 0; k <= i; ++k) {
      if (outer[k].is_same(outer[i])) {
        if (first_[i] != k) return false;
        break;
      }
    }
  }
  return true;
}

void WrappedLayout::set_gradient(size_t argument, Recipe gradient) {
  exchanges_[argument] =
      std::make_shared<const Exchange>(Exchange{exchanges_[argument]->tensor, std::move(gradient)});
}

WrappedLayout::Apart WrappedLayout::take_apart(const std::vector<at::Tensor>& outer) const {
  Apart apart;
  for (size_t i = 0; i < outer.size(); ++i) {
    if (first_[i] != i) {
      apart.begins.push_back(apart.begins[first_[i]]);
      continue;
    }
    apart.begins.push_back(apart.plain.size());
    subclass::take_apart(outer[i], exchanges_[i], apart.plain);
  }
  return apart;
}

}  // namespace ahead::detail
