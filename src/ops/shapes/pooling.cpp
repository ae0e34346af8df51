#include <ATen/native/Pool.h>

#include "ops/shapes/families.h"
#include "ops/shapes/layouts.h"
#include "ops/shapes/make.h"

namespace ahead::ops::shapes {
namespace {

using at::IntArrayRef;
using at::MemoryFormat;
using at::Tensor;
using Ints = std::vector<int64_t>;
using TensorPair = std::tuple<Tensor, Tensor>;

// The leading dimensions of self (batch and channels, or channels), then the pooled ones.
Ints pooled(const Tensor& self, IntArrayRef window_counts) {
  Ints sizes(self.sizes().begin(), self.sizes().end() - window_counts.size());
  sizes.insert(sizes.end(), window_counts.begin(), window_counts.end());
  return sizes;
}

void check_input(const Tensor& self, int64_t spatial_dims, const char* name) {
  TORCH_CHECK(self.dim() == spatial_dims + 1 || self.dim() == spatial_dims + 2, name, ": Expected ",
              spatial_dims + 1, "D or ", spatial_dims + 2, "D tensor, but got ", self.sizes());
  for (int64_t i = self.dim() - spatial_dims; i < self.dim(); ++i) {
    TORCH_CHECK(self.size(i) > 0, name,
                ": Expected input to have non-zero size for non-batch dimensions, but input has "
                "sizes ",
                self.sizes(), " with dimension ", i, " being empty");
  }
}

Tensor adaptive_avg_pool2d(const Tensor& self, IntArrayRef output_size) {
  check_input(self, 2, "adaptive_avg_pool2d()");
  TORCH_CHECK(output_size.size() == 2, "adaptive_avg_pool2d: output_size must be 2");
  return make(pooled(self, output_size), self.scalar_type(), self.suggest_memory_format());
}

Tensor adaptive_avg_pool2d_backward(const Tensor& grad, const Tensor& self) {
  TORCH_CHECK(grad.dim() == self.dim(),
              "adaptive_avg_pool2d_backward(): Expected grad_output and input to have the same "
              "number of dimensions");
  return make(self.sizes(), self.scalar_type(), self.suggest_memory_format());
}

Tensor adaptive_avg_pool3d(const Tensor& self, IntArrayRef output_size) {
  check_input(self, 3, "adaptive_avg_pool3d()");
  TORCH_CHECK(output_size.size() == 3, "adaptive_avg_pool3d: output_size must be 3");
  return make(pooled(self, output_size), self.scalar_type());
}

Tensor adaptive_avg_pool3d_backward(const Tensor&, const Tensor& self) {
  return make(self.sizes(), self.scalar_type());
}

int64_t element(IntArrayRef values, size_t i) {
  return values.size() == 1 ? values[0] : values[i];
}

TensorPair max_pool3d(const Tensor& self, IntArrayRef kernel_size, IntArrayRef stride,
                      IntArrayRef padding, IntArrayRef dilation, bool ceil_mode) {
  check_input(self, 3, "max_pool3d_with_indices()");
  auto steps = stride.empty() ? kernel_size : stride;
  Ints counts;
  for (int64_t i = 0; i < 3; ++i) {
    counts.push_back(at::native::pooling_output_shape<int64_t>(
        self.size(self.dim() - 3 + i), element(kernel_size, i), element(padding, i),
        element(steps, i), element(dilation, i), ceil_mode));
    TORCH_CHECK(counts.back() > 0, "max_pool3d_with_indices(): the output is too small");
  }
  auto sizes = pooled(self, counts);
  auto format = self.suggest_memory_format();
  return {make(sizes, self.scalar_type(), format), make(sizes, at::kLong, format)};
}

Tensor max_pool3d_backward(const Tensor& grad, const Tensor& self, IntArrayRef, IntArrayRef,
                           IntArrayRef, IntArrayRef, bool, const Tensor& indices) {
  TORCH_CHECK(grad.sizes() == indices.sizes(),
              "max_pool3d_with_indices_backward(): grad_output and indices differ in size");
  return make(self.sizes(), self.scalar_type(), self.suggest_memory_format());
}

Tensor max_unpool(const Tensor& self, const Tensor& indices, IntArrayRef output_size,
                  MemoryFormat format) {
  TORCH_CHECK(indices.scalar_type() == at::kLong,
              "elements in indices should be type int64 but got: ", indices.scalar_type());
  TORCH_CHECK(self.sizes() == indices.sizes(),
              "Expected shape of indices to be same as that of the input tensor (", self.sizes(),
              ") but got indices tensor with shape: ", indices.sizes());
  return make(pooled(self, output_size), self.scalar_type(), format);
}

Tensor max_unpool2d(const Tensor& self, const Tensor& indices, IntArrayRef output_size) {
  TORCH_CHECK(output_size.size() == 2,
              "There should be exactly two elements (height, width) in output_size");
  check_input(self, 2, "max_unpooling2d_forward_out()");
  return max_unpool(
      self, indices, output_size,
      rule_device().is_cpu() ? self.suggest_memory_format() : MemoryFormat::Contiguous);
}

Tensor max_unpool3d(const Tensor& self, const Tensor& indices, IntArrayRef output_size, IntArrayRef,
                    IntArrayRef) {
  TORCH_CHECK(output_size.size() == 3,
              "There should be exactly three elements (depth, height, width) in output_size");
  check_input(self, 3, "max_unpooling3d_forward_out()");
  return max_unpool(self, indices, output_size, MemoryFormat::Contiguous);
}

Tensor fractional_max_pool3d_backward(const Tensor&, const Tensor& self, IntArrayRef, IntArrayRef,
                                      const Tensor&) {
  return make(self.sizes(), self.scalar_type());
}

}  // namespace

void add_pooling_rules(ShapeRules& rules) {
  rules.add("_adaptive_avg_pool2d", TORCH_FN(adaptive_avg_pool2d));
  rules.add("_adaptive_avg_pool2d_backward", TORCH_FN(adaptive_avg_pool2d_backward));
  rules.add("_adaptive_avg_pool3d", TORCH_FN(adaptive_avg_pool3d));
  rules.add("_adaptive_avg_pool3d_backward", TORCH_FN(adaptive_avg_pool3d_backward));
  rules.add("max_pool3d_with_indices", TORCH_FN(max_pool3d));
  rules.add("max_pool3d_with_indices_backward", TORCH_FN(max_pool3d_backward));
  rules.add("max_unpool2d", TORCH_FN(max_unpool2d));
  rules.add("max_unpool3d", TORCH_FN(max_unpool3d));
  rules.add("fractional_max_pool3d_backward", TORCH_FN(fractional_max_pool3d_backward));
  rules.add_layout("max_pool2d_with_indices_backward", like_layout<1>);
  rules.add_layout("max_pool3d_with_indices_backward", like_layout<1>);
  rules.add_layout("avg_pool2d_backward", like_layout<1>);
  rules.add_layout("avg_pool3d_backward", like_layout<1>);
  rules.add_layout("_adaptive_avg_pool2d_backward", like_layout<1>);
  rules.add_layout("_adaptive_avg_pool3d_backward", like_layout<1>);
  rules.add_layout("adaptive_max_pool2d_backward", like_layout<1>);
  rules.add_layout("adaptive_max_pool3d_backward", like_layout<1>);
  rules.add_layout("fractional_max_pool2d_backward", like_layout<1>);
  rules.add_layout("fractional_max_pool3d_backward", like_layout<1>);
}

}  // namespace ahead::ops::shapes
