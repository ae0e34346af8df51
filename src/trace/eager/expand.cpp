#include "trace/eager/expand.h"

#include <ATen/FunctionalTensorWrapper.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/as_strided.h>
#include <ATen/ops/view.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <cstring>
#include <typeinfo>

#include "tensors/below_tracing.h"
#include "trace/tensor/functional.h"
#include "trace/tensor/views.h"

namespace ahead::tracing {
namespace {

namespace functional = at::functionalization::impl;

constexpr const char* expand_name = "expand";

/// LibTorch's kernel, found when ours is registered in front of it.
const c10::SafeKernelFunction* original = nullptr;

bool is_ours(const at::Tensor& tensor) {
  return functional::isFunctionalTensor(tensor) && is_fake(functional_wrapper(tensor).value());
}

/// The sizes that `self` would be expanded to, if they have as many elements.
std::optional<std::vector<c10::SymInt>> sizes_of_view(const at::Tensor& self,
                                                      std::vector<c10::SymInt> sizes) {
  if (sizes.size() < static_cast<size_t>(self.dim())) return std::nullopt;
  const size_t added = sizes.size() - static_cast<size_t>(self.dim());
  for (size_t i = 0; i < sizes.size(); ++i) {
    const c10::SymInt own = i < added ? 1 : self.sym_size(static_cast<int64_t>(i - added));
    if (i >= added && sizes[i].maybe_as_int() == -1) sizes[i] = own;
    if (sizes[i] != own) return std::nullopt;
  }
  return sizes;
}

void handle_expand(const c10::OperatorHandle& handle, c10::DispatchKeySet keys,
                   torch::jit::Stack* stack) {
  const size_t first = stack->size() - handle.schema().arguments().size();
  const at::Tensor self = (*stack)[first].toTensor();
  const auto sizes =
      is_ours(self) ? sizes_of_view(self, (*stack)[first + 1].toSymIntVector()) : std::nullopt;
  if (!sizes) return original->callBoxed(handle, keys, stack);
  stack->resize(first);
  // Only of a tensor without dimensions the new ones have no stride, by which products are rounded.
  const std::vector<c10::SymInt> no_strides(sizes->size(), 0);
  stack->emplace_back(self.dim() == 0 && !sizes->empty()
                          ? self.as_strided_symint(*sizes, no_strides)
                          : self.view_symint(*sizes));
}

}  // namespace

bool is_expanded(const at::Tensor& traced) {
  const auto& views = functional_wrapper(traced).view_metas();
  return std::any_of(views.begin(), views.end(), [](const auto& view) {
    const auto& meta = *view;
    return std::strstr(typeid(meta).name(), "expand_ViewMeta") != nullptr;
  });
}

at::Tensor view_by_layout(Outside& outside, const at::Tensor& traced) {
  namespace impl = torch::autograd::impl;
  functional::sync(traced);
  if (traced.is_inference() || !traced.is_view()) return {};
  const at::Tensor base(traced._base());
  if (!is_traced(base) || !base.is_alias_of(traced) || base.dtype() != traced.dtype() ||
      !functional_wrapper(base).view_metas().empty()) {
    return {};
  }
  outside.address_storage(base);
  functional::sync(base);
  at::Tensor view = base.as_strided(traced.sizes(), traced.strides(), traced.storage_offset());
  recover_by_layout(view);
  impl::get_view_autograd_meta(view)->set_creation_meta(
      impl::get_view_autograd_meta(traced)->get_creation_meta());
  return view;
}

void register_expand(torch::Library& functionalize) {
  const auto handle = c10::Dispatcher::singleton().findSchemaOrThrow("aten::expand", "");
  original = new c10::SafeKernelFunction(
      handle.getComputedKernelForDispatchKey(c10::DispatchKey::Functionalize));
  functionalize.impl(expand_name, torch::CppFunction::makeFromBoxedFunction<&handle_expand>());
}

Departures expand_departures() {
  return {
      departure_of<&handle_expand>(
          expand_name, "expand", "recorded as a `view` where no dimension grows",
          "functionalisation undoes `expand` by a sum, which rounds what is written through it"),
      departure_of<&view_by_layout>(
          "in-place operators on a part of an expanded tensor", "expand",
          "write to an `as_strided` view of the base, where no two elements are the same memory",
          "functionalisation undoes `expand` by a sum over what was expanded")};
}

}  // namespace ahead::tracing
