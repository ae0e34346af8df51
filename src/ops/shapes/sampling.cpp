#include <ATen/native/GridSamplerUtils.h>
#include <ATen/native/im2col_shape_check.h>

#include "ops/shapes/families.h"
#include "ops/shapes/layouts.h"
#include "ops/shapes/make.h"

namespace ahead::ops::shapes {
namespace {

using at::IntArrayRef;
using at::Tensor;
using TensorPair = std::tuple<Tensor, Tensor>;
using Sizes = at::DimVector;

// None of these kernels keeps a memory format: all results are contiguous.

void check_grid(const Tensor& input, const Tensor& grid, int64_t interpolation) {
  at::native::check_grid_sampler_common(input, grid);
  if (input.dim() == 5) {
    at::native::check_grid_sampler_3d(input, grid, interpolation);
  } else {
    at::native::check_grid_sampler_2d(input, grid);
  }
}

Tensor grid_sampler(const Tensor& input, const Tensor& grid, int64_t interpolation, int64_t, bool) {
  check_grid(input, grid, interpolation);
  Sizes sizes(grid.sizes().slice(0, grid.dim() - 1));
  sizes.insert(sizes.begin() + 1, input.size(1));
  return make(sizes, input.scalar_type());
}

TensorPair grid_sampler_backward(const Tensor&, const Tensor& input, const Tensor& grid,
                                 int64_t interpolation, int64_t, bool, std::array<bool, 2> mask) {
  check_grid(input, grid, interpolation);
  TensorPair result;
  if (mask[0]) std::get<0>(result) = make(input.sizes(), input.scalar_type());
  std::get<1>(result) = make(grid.sizes(), grid.scalar_type());
  return result;
}

TensorPair grid_sampler_fallback_backward(const Tensor& grad, const Tensor& input,
                                          const Tensor& grid, int64_t interpolation,
                                          int64_t padding, bool align_corners) {
  return grid_sampler_backward(grad, input, grid, interpolation, padding, align_corners,
                               {true, true});
}

Tensor cudnn_grid_sampler(const Tensor& input, const Tensor& grid) {
  return shapes::grid_sampler(input, grid, 0, 0, true);
}

TensorPair cudnn_grid_sampler_backward(const Tensor& input, const Tensor& grid,
                                       const Tensor& grad) {
  return grid_sampler_backward(grad, input, grid, 0, 0, true, {true, true});
}

Tensor cudnn_affine_grid_generator(const Tensor& theta, int64_t batch, int64_t, int64_t height,
                                   int64_t width) {
  return make({batch, height, width, 2}, theta.scalar_type());
}

Tensor cudnn_affine_grid_generator_backward(const Tensor& grad, int64_t batch, int64_t, int64_t,
                                            int64_t) {
  return make({batch, 2, 3}, grad.scalar_type());
}

void check_pair(IntArrayRef values, const char* name) {
  TORCH_CHECK(values.size() == 2, "It is expected ", name, " equals to 2, but got size ",
              values.size());
}

void check_windows(IntArrayRef kernel, IntArrayRef dilation, IntArrayRef padding,
                   IntArrayRef stride) {
  check_pair(kernel, "kernel_size");
  check_pair(dilation, "dilation");
  check_pair(padding, "padding");
  check_pair(stride, "stride");
}

/// What windows over images become: columns.
Dims column_sizes(Dims sizes, IntArrayRef kernel, IntArrayRef dilation, IntArrayRef padding,
                  IntArrayRef stride) {
  const size_t first = sizes.size() - 2;
  Dim windows = 1;
  for (size_t i = 0; i < 2; ++i) {
    const int64_t reach = dilation[i] * (kernel[i] - 1) + 1;
    windows = windows * ((sizes[first + i] + 2 * padding[i] - reach) / stride[i] + 1);
  }
  sizes.resize(first);
  sizes.back() = sizes.back() * (kernel[0] * kernel[1]);
  sizes.push_back(windows);
  return sizes;
}

/// What columns become again: images of this size.
Dims image_sizes(Dims sizes, const Dims& output_size, IntArrayRef kernel) {
  sizes.pop_back();
  sizes.back() = sizes.back() / (kernel[0] * kernel[1]);
  sizes.append(output_size.begin(), output_size.end());
  return sizes;
}

Layouts im2col_layout(const LayoutCall& call) {
  return {Layout::contiguous(column_sizes(call.sizes(0), call.numbers(1), call.numbers(2),
                                          call.numbers(3), call.numbers(4)))};
}

Layouts col2im_layout(const LayoutCall& call) {
  return {Layout::contiguous(image_sizes(call.sizes(0), call.list(1), call.numbers(2)))};
}

Tensor im2col(const Tensor& self, IntArrayRef kernel, IntArrayRef dilation, IntArrayRef padding,
              IntArrayRef stride) {
  check_windows(kernel, dilation, padding, stride);
  at::native::im2col_shape_check(self, Tensor(), kernel[0], kernel[1], dilation[0], dilation[1],
                                 padding[0], padding[1], stride[0], stride[1]);
  return make(column_sizes(self.sizes(), kernel, dilation, padding, stride), self.scalar_type());
}

Tensor col2im(const Tensor& self, IntArrayRef output_size, IntArrayRef kernel, IntArrayRef dilation,
              IntArrayRef padding, IntArrayRef stride) {
  check_pair(output_size, "output_size");
  check_windows(kernel, dilation, padding, stride);
  at::native::col2im_shape_check(self, Tensor(), output_size[0], output_size[1], kernel[0],
                                 kernel[1], dilation[0], dilation[1], padding[0], padding[1],
                                 stride[0], stride[1]);
  return make(image_sizes(self.sizes(), output_size, kernel), self.scalar_type());
}

}  // namespace

void add_sampling_rules(ShapeRules& rules) {
  rules.add("grid_sampler_2d", TORCH_FN(grid_sampler));
  rules.add("grid_sampler_2d_backward", TORCH_FN(grid_sampler_backward));
  rules.add("grid_sampler_3d", TORCH_FN(grid_sampler));
  rules.add("grid_sampler_3d_backward", TORCH_FN(grid_sampler_backward));
  rules.add("_grid_sampler_2d_cpu_fallback", TORCH_FN(grid_sampler));
  rules.add("_grid_sampler_2d_cpu_fallback_backward", TORCH_FN(grid_sampler_fallback_backward));
  rules.add("cudnn_grid_sampler", TORCH_FN(cudnn_grid_sampler));
  rules.add("cudnn_grid_sampler_backward", TORCH_FN(cudnn_grid_sampler_backward));
  rules.add("cudnn_affine_grid_generator", TORCH_FN(cudnn_affine_grid_generator));
  rules.add("cudnn_affine_grid_generator_backward", TORCH_FN(cudnn_affine_grid_generator_backward));
  rules.add("im2col", TORCH_FN(im2col));
  rules.add("col2im", TORCH_FN(col2im));
  rules.add_layout("im2col", im2col_layout);
  rules.add_layout("col2im", col2im_layout);
  rules.add_layout("grid_sampler_2d_backward", like_layout<1, 2>);
  rules.add_layout("grid_sampler_3d_backward", like_layout<1, 2>);
  rules.add_layout("upsample_nearest1d_backward", listed_in_order_layout<2>);
  rules.add_layout("upsample_nearest2d_backward", listed_in_order_layout<2>);
  rules.add_layout("upsample_nearest3d_backward", listed_in_order_layout<2>);
  rules.add_layout("upsample_linear1d_backward", listed_in_order_layout<2>);
  rules.add_layout("upsample_bilinear2d_backward", listed_in_order_layout<2>);
  rules.add_layout("upsample_bicubic2d_backward", listed_in_order_layout<2>);
  rules.add_layout("upsample_trilinear3d_backward", listed_in_order_layout<2>);
}

}  // namespace ahead::ops::shapes
