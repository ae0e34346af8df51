#include <ATen/Context.h>

#include <algorithm>
#include <numeric>

#include "ops/shapes/families.h"
#include "ops/shapes/layouts.h"
#include "ops/shapes/make.h"

namespace ahead::ops::shapes {
namespace {

using at::IntArrayRef;
using at::Tensor;
using Sizes = at::DimVector;

void sort_by_stride(Sizes::iterator begin, Sizes::iterator end, IntArrayRef strides) {
  std::sort(begin, end, [&](int64_t a, int64_t b) { return strides[a] > strides[b]; });
}

// One call of the library: untransformed dimensions become one batch dimension, in the order of
// their strides, outside of the transformed ones. std::partition and std::sort are not stable, and
// the layout shows it.
Tensor transform(const Tensor& self, IntArrayRef sizes, IntArrayRef dims, at::ScalarType dtype) {
  if (!at::hasMKL()) return make(sizes, dtype);
  Sizes order(sizes.size());
  std::iota(order.begin(), order.end(), 0);
  auto batch_end = std::partition(order.begin(), order.end(), [&](int64_t dim) {
    return std::find(dims.begin(), dims.end(), dim) == dims.end();
  });
  sort_by_stride(order.begin(), batch_end, self.strides());
  std::copy(dims.begin(), dims.end(), batch_end);

  Sizes strides(sizes.size());
  int64_t next = 1;
  auto dim = order.end();
  while (dim != batch_end) {
    strides[*--dim] = next;
    next *= std::max<int64_t>(sizes[*dim], 1);
  }
  while (dim != order.begin()) {
    strides[*--dim] = next;
    next *= sizes[*dim];
  }
  return make_strided(sizes, strides, dtype);
}

/// The transform of what is known to be real has about half of the numbers.
Dims one_sided_sizes(Dims sizes, int64_t dim) {
  Dim& size = sizes[from_front(dim, sizes.size())];
  size = size / 2 + 1;
  return sizes;
}

Layouts r2c_layout(const LayoutCall& call) {
  const Dims sizes = call.sizes(0);
  return {in_order(call, call.flag(3) ? one_sided_sizes(sizes, call.numbers(1).back()) : sizes)};
}

/// The last dimension of a transform to real numbers has the length that is asked for.
Dims real_sizes(Dims sizes, int64_t dim, Dim length) {
  sizes[from_front(dim, sizes.size())] = length;
  return sizes;
}

Layouts c2r_layout(const LayoutCall& call) {
  return {in_order(call, real_sizes(call.sizes(0), call.numbers(1).back(), call.integer(3)))};
}

Tensor c2c(const Tensor& self, IntArrayRef dims, int64_t, bool) {
  TORCH_CHECK(at::isComplexType(self.scalar_type()), "_fft_c2c expects a complex tensor");
  if (dims.empty()) return make_like(self);
  Sizes sorted(dims);
  sort_by_stride(sorted.begin(), sorted.end(), self.strides());
  return transform(self, self.sizes(), sorted, self.scalar_type());
}

Tensor r2c(const Tensor& self, IntArrayRef dims, int64_t, bool onesided) {
  TORCH_CHECK(at::isFloatingType(self.scalar_type()), "_fft_r2c expects a real tensor");
  Dims sizes = self.sizes();
  if (onesided) sizes = one_sided_sizes(std::move(sizes), dims.back());
  Sizes sorted(dims);
  sort_by_stride(sorted.begin(), sorted.end() - 1, self.strides());
  return transform(self, sizes, sorted, c10::toComplexType(self.scalar_type()));
}

Tensor c2r(const Tensor& self, IntArrayRef dims, int64_t normalization, int64_t last_size) {
  TORCH_CHECK(at::isComplexType(self.scalar_type()), "_fft_c2r expects a complex tensor");
  Tensor input =
      dims.size() > 1 ? c2c(self, dims.slice(0, dims.size() - 1), normalization, false) : self;
  return transform(input, real_sizes(self.sizes(), dims.back(), last_size),
                   dims.slice(dims.size() - 1), c10::toRealValueType(self.scalar_type()));
}

}  // namespace

void add_fft_rules(ShapeRules& rules) {
  rules.add("_fft_c2c", TORCH_FN(c2c));
  rules.add("_fft_c2r", TORCH_FN(c2r));
  rules.add("_fft_r2c", TORCH_FN(r2c));
  rules.add_layout("_fft_c2c", like_layout<0>);
  rules.add_layout("_fft_r2c", r2c_layout);
  rules.add_layout("_fft_c2r", c2r_layout);
}

}  // namespace ahead::ops::shapes
