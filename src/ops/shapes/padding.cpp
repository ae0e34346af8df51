#include <ATen/native/Padding.h>

#include <algorithm>

#include "ops/shapes/families.h"
#include "ops/shapes/layouts.h"
#include "ops/shapes/make.h"

namespace ahead::ops::shapes {
namespace {

using at::IntArrayRef;
using at::MemoryFormat;
using at::Tensor;
using Sizes = at::DimVector;

// Only the CPU kernels keep the memory format of their input, which some Meta kernels miss.
MemoryFormat format(const Tensor& input) {
  return rule_device().is_cpu() ? input.suggest_memory_format() : MemoryFormat::Contiguous;
}

/// The padding holds a pair for each padded dimension, the last dimension first.
Sizes padded_sizes(const Tensor& input, IntArrayRef padding) {
  Sizes sizes(input.sizes());
  for (size_t i = 0; i < padding.size(); ++i) *(sizes.end() - 1 - i / 2) += padding[i];
  return sizes;
}

template <int dims>
Tensor replication_pad(const Tensor& input, IntArrayRef padding) {
  at::native::padding::check_valid_input<dims>(input, padding);
  const Sizes sizes = padded_sizes(input, padding);
  TORCH_CHECK(std::any_of(sizes.end() - dims, sizes.end(), [](int64_t size) { return size >= 1; }),
              "input ", input.sizes(), " is too small. Calculated output ", IntArrayRef(sizes));
  return make(sizes, input.scalar_type(), format(input));
}

template <int dims>
Tensor reflection_pad(const Tensor& input, IntArrayRef padding) {
  at::native::padding::check_valid_input<dims>(input, padding);
  for (int64_t i = 0; i < dims; ++i) {
    const int64_t dim = input.dim() - 1 - i;
    const int64_t before = padding[2 * i], after = padding[2 * i + 1];
    TORCH_CHECK(before < input.size(dim) && after < input.size(dim),
                "Padding size should be less than the corresponding input dimension, but got: "
                "padding (",
                before, ", ", after, ") at dimension ", dim, " of input ", input.sizes());
  }
  return replication_pad<dims>(input, padding);
}

template <int64_t dims>
Tensor pad_backward(const Tensor& grad, const Tensor& input, IntArrayRef padding) {
  TORCH_CHECK(padding.size() == 2 * dims, "padding size is expected to be ", 2 * dims,
              ", but got: ", padding.size());
  TORCH_CHECK(input.dim() == dims + 1 || input.dim() == dims + 2, "Expected ", dims + 1, "D or ",
              dims + 2, "D (batch mode) tensor for input, but got: ", input.sizes());
  TORCH_CHECK(grad.dim() == input.dim(), "grad_output has ", grad.dim(),
              " dimensions. Expected: ", input.dim());
  const Sizes expected = padded_sizes(input, padding);
  for (int64_t dim = input.dim() - dims; dim < input.dim(); ++dim) {
    TORCH_CHECK(grad.size(dim) == expected[dim], "grad_output size at dimension ", dim,
                " unexpected. Expected: ", expected[dim], ", Got: ", grad.size(dim));
  }
  return make(input.sizes(), input.scalar_type(), format(input));
}

Layouts constant_pad_layout(const LayoutCall& call) {
  Dims sizes = call.sizes(0);
  const Dims pads = call.list(1);
  for (size_t i = 0; i < pads.size() / 2; ++i) {
    Dim& size = sizes[sizes.size() - 1 - i];
    size = size + pads[2 * i] + pads[2 * i + 1];
  }
  return {in_order(call, std::move(sizes))};
}

}  // namespace

void add_padding_rules(ShapeRules& rules) {
  rules.add("reflection_pad2d", TORCH_FN((reflection_pad<2>)));
  rules.add("reflection_pad3d", TORCH_FN((reflection_pad<3>)));
  rules.add("reflection_pad2d_backward", TORCH_FN((pad_backward<2>)));
  rules.add("reflection_pad3d_backward", TORCH_FN((pad_backward<3>)));
  rules.add("replication_pad2d", TORCH_FN((replication_pad<2>)));
  rules.add("replication_pad3d", TORCH_FN((replication_pad<3>)));
  rules.add("replication_pad2d_backward", TORCH_FN((pad_backward<2>)));
  rules.add("replication_pad3d_backward", TORCH_FN((pad_backward<3>)));
  rules.add_layout("constant_pad_nd", constant_pad_layout);
  rules.add_layout("reflection_pad1d_backward", like_layout<1>);
  rules.add_layout("reflection_pad2d_backward", like_layout<1>);
  rules.add_layout("reflection_pad3d_backward", like_layout<1>);
  rules.add_layout("replication_pad1d_backward", like_layout<1>);
  rules.add_layout("replication_pad2d_backward", like_layout<1>);
  rules.add_layout("replication_pad3d_backward", like_layout<1>);
}

}  // namespace ahead::ops::shapes
