#include <ATen/Functions.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/WrapDimUtilsMulti.h>

#include "ops/shapes/families.h"
#include "ops/shapes/make.h"

namespace ahead::ops::shapes {
namespace {

using at::IntArrayRef;
using at::Tensor;
using Dims = at::DimVector;

Tensor flip(const Tensor& self, IntArrayRef dims) {
  at::dim_list_to_bitset(dims, self.dim());
  return make_like(self);
}

// The CPU kernel concatenates the two parts, which keeps channels-last formats.
Tensor roll_along(const Tensor& self, int64_t shift, int64_t dim) {
  if (self.numel() == 0) return make_like(self);
  const int64_t size = self.size(dim);
  const int64_t start = (((size - shift) % size) + size) % size;
  return at::cat({self.narrow(dim, start, size - start), self.narrow(dim, 0, start)}, dim);
}

Tensor roll(const Tensor& self, IntArrayRef shifts, IntArrayRef dims) {
  TORCH_CHECK(!shifts.empty(), "`shifts` required");
  TORCH_CHECK(dims.size() == shifts.size() || (dims.empty() && shifts.size() == 1),
              "shifts and dimensions must align. shifts: ", shifts.size(), ", dims:", dims.size());
  if (dims.empty() || !rule_device().is_cpu()) return make(self.sizes(), self.scalar_type());
  Tensor rolled = self;
  for (size_t i = 0; i < dims.size(); ++i) {
    rolled = roll_along(rolled, shifts[i], at::maybe_wrap_dim(dims[i], self.dim()));
  }
  return rolled;
}

Tensor rot90(const Tensor& self, int64_t k, IntArrayRef dims) {
  TORCH_CHECK(dims.size() == 2, "expected total rotation dims == 2, but got dims = ", dims.size());
  const int64_t first = at::maybe_wrap_dim(dims[0], self.dim());
  const int64_t second = at::maybe_wrap_dim(dims[1], self.dim());
  TORCH_CHECK(first != second, "expected rotation dims to be different, but got dim0 = ", dims[0],
              " and dim1 = ", dims[1]);
  const int64_t quarters = ((k % 4) + 4) % 4;
  if (quarters == 0) return make(self.sizes(), self.scalar_type());
  Tensor flipped = make_like(self);
  if (quarters == 2) return flipped;
  Dims sizes(flipped.sizes()), strides(flipped.strides());
  std::swap(sizes[first], sizes[second]);
  std::swap(strides[first], strides[second]);
  return make_strided(sizes, strides, self.scalar_type());
}

Tensor pixel_shuffle(const Tensor& self, int64_t factor) {
  TORCH_CHECK(self.dim() >= 3,
              "pixel_shuffle expects input to have at least 3 dimensions, but got ", self.dim());
  TORCH_CHECK(factor > 0, "pixel_shuffle expects a positive upscale_factor, but got ", factor);
  TORCH_CHECK(self.size(-3) % (factor * factor) == 0,
              "pixel_shuffle expects its input's 'channel' dimension to be divisible by the square "
              "of upscale_factor, but input.size(-3)=",
              self.size(-3));
  Dims sizes(self.sizes());
  auto channels = sizes.end() - 3;
  channels[0] /= factor * factor;
  channels[1] *= factor;
  channels[2] *= factor;
  return make(sizes, self.scalar_type(), self.suggest_memory_format());
}

Tensor pixel_unshuffle(const Tensor& self, int64_t factor) {
  TORCH_CHECK(self.dim() >= 3,
              "pixel_unshuffle expects input to have at least 3 dimensions, but got ", self.dim());
  TORCH_CHECK(factor > 0, "pixel_unshuffle expects a positive downscale_factor, but got ", factor);
  TORCH_CHECK(self.size(-2) % factor == 0 && self.size(-1) % factor == 0,
              "pixel_unshuffle expects height and width to be divisible by downscale_factor");
  // The CPU kernel returns an empty input as it is, with the input's sizes.
  if (self.numel() == 0 && rule_device().is_cpu()) return make_like(self);
  Dims sizes(self.sizes());
  auto channels = sizes.end() - 3;
  channels[0] *= factor * factor;
  channels[1] /= factor;
  channels[2] /= factor;
  return make(sizes, self.scalar_type(), self.suggest_memory_format());
}

Tensor channel_shuffle(const Tensor& self, int64_t groups) {
  TORCH_CHECK(self.dim() > 2, "channel_shuffle expects input with > 2 dims, but got ", self.dim());
  TORCH_CHECK(groups > 0 && self.size(1) % groups == 0,
              "Number of channels must be divisible by groups. Got ", self.size(1),
              " channels and ", groups, " groups.");
  return make(self.sizes(), self.scalar_type(), self.suggest_memory_format());
}

}  // namespace

void add_rearranging_rules(ShapeRules& rules) {
  rules.add("flip", TORCH_FN(flip));
  rules.add("roll", TORCH_FN(roll));
  rules.add("rot90", TORCH_FN(rot90));
  rules.add("pixel_shuffle", TORCH_FN(pixel_shuffle));
  rules.add("pixel_unshuffle", TORCH_FN(pixel_unshuffle));
  rules.add("channel_shuffle", TORCH_FN(channel_shuffle));
  rules.add("native_channel_shuffle", TORCH_FN(channel_shuffle));
}

}  // namespace ahead::ops::shapes
