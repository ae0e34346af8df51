#include <ATen/Functions.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/WrapDimUtilsMulti.h>

#include "ops/shapes/families.h"
#include "ops/shapes/layouts.h"
#include "ops/shapes/make.h"

namespace ahead::ops::shapes {
namespace {

using at::IntArrayRef;
using at::Tensor;

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

/// What rotating by an odd number of quarters does to sizes or strides.
Dims rotated(Dims along, int64_t k, IntArrayRef dims) {
  if (k % 2 != 0)
    std::swap(along[from_front(dims[0], along.size())], along[from_front(dims[1], along.size())]);
  return along;
}

Tensor rot90(const Tensor& self, int64_t k, IntArrayRef dims) {
  TORCH_CHECK(dims.size() == 2, "expected total rotation dims == 2, but got dims = ", dims.size());
  const int64_t first = at::maybe_wrap_dim(dims[0], self.dim());
  const int64_t second = at::maybe_wrap_dim(dims[1], self.dim());
  TORCH_CHECK(first != second, "expected rotation dims to be different, but got dim0 = ", dims[0],
              " and dim1 = ", dims[1]);
  if (k % 4 == 0) return make(self.sizes(), self.scalar_type());
  const Tensor flipped = make_like(self);
  return make_strided(rotated(flipped.sizes(), k, dims), rotated(flipped.strides(), k, dims),
                      self.scalar_type());
}

enum class Shuffle : uint8_t { ChannelsToPlaces, PlacesToChannels };

template <Shuffle shuffle>
Dims shuffled_sizes(Dims sizes, int64_t factor) {
  constexpr bool to_places = shuffle == Shuffle::ChannelsToPlaces;
  Dim* channels = sizes.end() - 3;
  channels[0] = to_places ? channels[0] / (factor * factor) : channels[0] * (factor * factor);
  for (Dim* place : {channels + 1, channels + 2})
    *place = to_places ? *place * factor : *place / factor;
  return sizes;
}

template <Shuffle shuffle>
Layouts shuffled_layout(const LayoutCall& call) {
  return {Layout::contiguous(shuffled_sizes<shuffle>(call.sizes(0), call.number(1)))};
}

Layouts rot90_layout(const LayoutCall& call) {
  return {in_order(call, rotated(call.sizes(0), call.number(1), call.numbers(2)))};
}

Layouts copy_layout(const LayoutCall& call) {
  return {call.layout(0)};
}

Layouts repeat_layout(const LayoutCall& call) {
  Dims sizes = call.list(1);
  const Dims source = call.sizes(0);
  const size_t added = sizes.size() - source.size();
  for (size_t i = 0; i < source.size(); ++i) sizes[i + added] = sizes[i + added] * source[i];
  return {Layout::contiguous(std::move(sizes))};
}

Layouts stack_layout(const LayoutCall& call) {
  const std::vector<Tensor> tensors = call.arguments[0].toTensorVector();
  Dims sizes = to_dims(tensors[0].sym_sizes());
  const size_t dim = from_front(call.number(1), sizes.size() + 1);
  sizes.insert(sizes.begin() + dim, static_cast<int64_t>(tensors.size()));
  return {Layout::contiguous(std::move(sizes))};
}

Layouts cat_layout(const LayoutCall& call) {
  Dims sizes;
  size_t dim = 0;
  for (const Tensor& tensor : call.arguments[0].toTensorVector()) {
    const Dims own = to_dims(tensor.sym_sizes());
    if (own.size() == 1 && own[0] == 0) continue;
    if (sizes.empty()) {
      sizes = own;
      dim = from_front(call.number(1), own.size());
    } else {
      sizes[dim] = sizes[dim] + own[dim];
    }
  }
  return {in_order(call, std::move(sizes))};
}

Tensor pixel_shuffle(const Tensor& self, int64_t factor) {
  TORCH_CHECK(self.dim() >= 3,
              "pixel_shuffle expects input to have at least 3 dimensions, but got ", self.dim());
  TORCH_CHECK(factor > 0, "pixel_shuffle expects a positive upscale_factor, but got ", factor);
  TORCH_CHECK(self.size(-3) % (factor * factor) == 0,
              "pixel_shuffle expects its input's 'channel' dimension to be divisible by the square "
              "of upscale_factor, but input.size(-3)=",
              self.size(-3));
  return make(shuffled_sizes<Shuffle::ChannelsToPlaces>(self.sizes(), factor), self.scalar_type(),
              self.suggest_memory_format());
}

Tensor pixel_unshuffle(const Tensor& self, int64_t factor) {
  TORCH_CHECK(self.dim() >= 3,
              "pixel_unshuffle expects input to have at least 3 dimensions, but got ", self.dim());
  TORCH_CHECK(factor > 0, "pixel_unshuffle expects a positive downscale_factor, but got ", factor);
  TORCH_CHECK(self.size(-2) % factor == 0 && self.size(-1) % factor == 0,
              "pixel_unshuffle expects height and width to be divisible by downscale_factor");
  // The CPU kernel returns an empty input as it is, with the input's sizes.
  if (self.numel() == 0 && rule_device().is_cpu()) return make_like(self);
  return make(shuffled_sizes<Shuffle::PlacesToChannels>(self.sizes(), factor), self.scalar_type(),
              self.suggest_memory_format());
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
  rules.add_layout("pixel_shuffle", shuffled_layout<Shuffle::ChannelsToPlaces>);
  rules.add_layout("pixel_unshuffle", shuffled_layout<Shuffle::PlacesToChannels>);
  rules.add_layout("rot90", rot90_layout);
  rules.add_layout("repeat", repeat_layout);
  rules.add_layout("stack", stack_layout);
  rules.add_layout("cat", cat_layout);
  rules.add_layout("copy", copy_layout);
  rules.add_layout("clone", like_layout<0>);
  rules.add_layout("_to_copy", like_layout<0>);
  rules.add_layout("flip", like_layout<0>);
  rules.add_layout("roll", like_layout<0>);
  rules.add_layout("tril", like_layout<0>);
  rules.add_layout("triu", like_layout<0>);
}

}  // namespace ahead::ops::shapes
