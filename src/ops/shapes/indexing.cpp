#include <ATen/Functions.h>
#include <ATen/WrapDimUtils.h>

#include "ahead/errors.h"
#include "ops/shapes/families.h"
#include "ops/shapes/layouts.h"
#include "ops/shapes/make.h"

namespace ahead::ops::shapes {
namespace {

using at::IntArrayRef;
using at::Scalar;
using at::Tensor;
using Sizes = at::DimVector;
using Indices = c10::List<std::optional<Tensor>>;
using OptionalTensor = std::optional<Tensor>;

// LibTorch's Meta kernel is right for numbers; for a mask it would ask for the mask's values.
Tensor index(const Tensor& self, const Indices& indices) {
  for (const std::optional<Tensor> along : indices) {
    if (!along || !along->defined()) continue;
    if (along->scalar_type() == at::kBool || along->scalar_type() == at::kByte) {
      throw DataDependent("trace",
                          "aten.index.Tensor: the number of true elements of the mask decides the "
                          "size of the result. Use torch::where or masked_fill instead.");
    }
  }
  return at::index(self, indices);
}

Tensor masked_index(const Tensor& self, const Tensor&, const Indices& indices, const Scalar&) {
  return at::index(self, indices);
}

Tensor masked_index_put(const Tensor& self, const Tensor&, const Indices&, const Tensor&) {
  return make_like(self);
}

/// Of one dimension as many elements as there are indices.
Dims selected_sizes(Dims sizes, int64_t dim, Dim count) {
  if (!sizes.empty()) sizes[from_front(dim, sizes.size())] = count;
  return sizes;
}

Layouts index_select_layout(const LayoutCall& call) {
  const Dim count = product_of(call.sizes(2));
  return {Layout::contiguous(selected_sizes(call.sizes(0), call.number(1), count))};
}

/// Elements at places that tensors of indices name; dimensions without one are taken whole.
Layouts index_layout(const LayoutCall& call) {
  const Dims source = call.sizes(0);
  Dims places, before, after;
  size_t dim = 0, groups = 0;
  bool was_index = false;
  for (const c10::IValue& entry : call.arguments[1].toListRef()) {
    const bool is_index = entry.isTensor() && entry.toTensor().defined();
    if (is_index) {
      const Tensor& indices = entry.toTensor();
      if (indices.scalar_type() == at::kBool || indices.scalar_type() == at::kByte)
        call.refuse("how many it takes depends on values");
      places = broadcast(call, places, to_dims(indices.sym_sizes()));
      if (!was_index) ++groups;
    } else {
      (groups == 0 ? before : after).push_back(source[dim]);
    }
    was_index = is_index;
    ++dim;
  }
  for (; dim < source.size(); ++dim) after.push_back(source[dim]);
  Dims sizes = groups > 1 ? places : before;
  const Dims& second = groups > 1 ? before : places;
  sizes.append(second.begin(), second.end());
  sizes.append(after.begin(), after.end());
  return {in_order(call, std::move(sizes))};
}

Tensor index_select(const Tensor& self, int64_t dim, const Tensor& index) {
  TORCH_CHECK_INDEX(index.dim() <= 1,
                    "index_select(): Index is supposed to be a vector, but got dim: ", index.dim());
  TORCH_CHECK(index.scalar_type() == at::kLong || index.scalar_type() == at::kInt,
              "index_select(): Expected dtype int32 or int64 for index");
  at::maybe_wrap_dim(dim, self.dim());
  return make(selected_sizes(self.sizes(), dim, index.numel()), self.scalar_type());
}

// LibTorch's Meta kernel fails for an empty index.
Tensor index_add(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& source,
                 const Scalar&) {
  dim = at::maybe_wrap_dim(dim, self.dim());
  TORCH_CHECK_INDEX(index.dim() <= 1,
                    "index_add_(): Index is supposed to be a vector, but got dim: ", index.dim());
  TORCH_CHECK(self.scalar_type() == source.scalar_type(), "index_add_(): self (",
              self.scalar_type(), ") and source (", source.scalar_type(),
              ") must have the same scalar type");
  TORCH_CHECK_INDEX(source.dim() == 0 || index.numel() == source.size(dim),
                    "index_add_(): Number of indices should be equal to source.size(dim)");
  return make(self.sizes(), self.scalar_type());
}

Tensor take(const Tensor& self, const Tensor& index) {
  TORCH_CHECK(index.scalar_type() == at::kLong,
              "take(): Expected a long tensor for index, but got ", index.scalar_type());
  return make(index.sizes(), self.scalar_type());
}

Tensor masked_scatter_backward(const Tensor& grad, const Tensor&, IntArrayRef sizes) {
  return make(sizes, grad.scalar_type());
}

Tensor nonzero_static(const Tensor& self, int64_t size, int64_t) {
  TORCH_CHECK(size >= 0, "nonzero_static: 'size' must be an non-negative integer");
  return make({size, self.dim()}, at::kLong);
}

at::ScalarType bucket_type(bool out_int32) {
  return out_int32 ? at::kInt : at::kLong;
}

Tensor bucketize(const Tensor& self, const Tensor& boundaries, bool out_int32, bool) {
  TORCH_CHECK(boundaries.dim() == 1, "boundaries tensor must be 1 dimension, but got dim(",
              boundaries.dim(), ")");
  return make(self.sizes(), bucket_type(out_int32));
}

Tensor bucketize_scalar(const Scalar&, const Tensor&, bool out_int32, bool) {
  return make(IntArrayRef{}, bucket_type(out_int32));
}

Tensor searchsorted(const Tensor& sorted, const Tensor& self, bool out_int32, bool,
                    std::optional<std::string_view>, const OptionalTensor&) {
  TORCH_CHECK(sorted.dim() == 1 ||
                  (sorted.dim() == self.dim() && sorted.sizes().slice(0, sorted.dim() - 1) ==
                                                     self.sizes().slice(0, self.dim() - 1)),
              "boundaries tensor should be 1 dimension or the first N-1 dimensions of boundaries "
              "tensor and input value tensor must match");
  return make(self.sizes(), bucket_type(out_int32));
}

Tensor searchsorted_scalar(const Tensor&, const Scalar&, bool out_int32, bool,
                           std::optional<std::string_view>, const OptionalTensor&) {
  return make(IntArrayRef{}, bucket_type(out_int32));
}

Tensor repeat_interleave(const Tensor& repeats, std::optional<int64_t> output_size) {
  if (!output_size) {
    throw DataDependent("trace",
                        "aten.repeat_interleave.Tensor: the sum of the repeats decides the size of "
                        "the result. Pass output_size.");
  }
  return make({*output_size}, repeats.scalar_type());
}

// LibTorch's Meta kernel returns an empty vector.
Tensor scalar_isin(const Scalar&, const Tensor&, bool, bool) {
  return make(IntArrayRef{}, at::kBool);
}

Tensor unfold_backward(const Tensor& grad, IntArrayRef sizes, int64_t, int64_t, int64_t) {
  return make(sizes, grad.scalar_type());
}

Tensor segment_reduce(const Tensor& data, std::string_view, const OptionalTensor& lengths,
                      const OptionalTensor&, const OptionalTensor& offsets, int64_t axis, bool,
                      const std::optional<Scalar>&) {
  TORCH_CHECK(lengths.has_value() != offsets.has_value(),
              "segment_reduce(): exactly one of lengths and offsets must be given");
  axis = at::maybe_wrap_dim(axis, data.dim());
  Sizes sizes(lengths ? lengths->sizes() : offsets->sizes());
  TORCH_CHECK(static_cast<int64_t>(sizes.size()) == axis + 1,
              "segment_reduce(): Expected axis to be the last dimension of lengths or offsets");
  if (offsets) --sizes.back();
  for (int64_t dim = axis + 1; dim < data.dim(); ++dim) sizes.push_back(data.size(dim));
  return make(sizes, data.scalar_type());
}

Tensor segment_reduce_backward(const Tensor&, const Tensor&, const Tensor& data, std::string_view,
                               const OptionalTensor&, const OptionalTensor&, int64_t,
                               const std::optional<Scalar>&) {
  return make(data.sizes(), data.scalar_type());
}

}  // namespace

void add_indexing_rules(ShapeRules& rules) {
  rules.add("index.Tensor", TORCH_FN(index));
  rules.add("_unsafe_masked_index", TORCH_FN(masked_index));
  rules.add("_unsafe_masked_index_put_accumulate", TORCH_FN(masked_index_put));
  rules.add("index_add", TORCH_FN(index_add));
  rules.add("index_select", TORCH_FN(index_select));
  rules.add("take", TORCH_FN(take));
  rules.add("masked_scatter_backward", TORCH_FN(masked_scatter_backward));
  rules.add("nonzero_static", TORCH_FN(nonzero_static));
  rules.add("bucketize.Scalar", TORCH_FN(bucketize_scalar));
  rules.add("bucketize.Tensor", TORCH_FN(bucketize));
  rules.add("searchsorted.Scalar", TORCH_FN(searchsorted_scalar));
  rules.add("searchsorted.Tensor", TORCH_FN(searchsorted));
  rules.add("repeat_interleave.Tensor", TORCH_FN(repeat_interleave));
  rules.add("isin.Scalar_Tensor", TORCH_FN(scalar_isin));
  rules.add("unfold_backward", TORCH_FN(unfold_backward));
  rules.add("segment_reduce", TORCH_FN(segment_reduce));
  rules.add("_segment_reduce_backward", TORCH_FN(segment_reduce_backward));
  rules.add_layout("index.Tensor", index_layout);
  rules.add_layout("index_select", index_select_layout);
  rules.add_layout("masked_fill.Tensor", pointwise_layout);
  rules.add_layout("take", like_layout<1>);
  rules.add_layout("gather", like_layout<2>);
  rules.add_layout("index_copy", like_layout<0>);
  rules.add_layout("index_fill.int_Scalar", like_layout<0>);
  rules.add_layout("scatter.reduce", like_layout<0>);
  rules.add_layout("scatter_reduce.two", like_layout<0>);
  rules.add_layout("masked_scatter", like_layout<0>);
  rules.add_layout("put", like_layout<0>);
  rules.add_layout("scatter.src", like_layout<0>);
  rules.add_layout("scatter.value", like_layout<0>);
  rules.add_layout("scatter_add", like_layout<0>);
  rules.add_layout("index_add", like_layout<0>);
  rules.add_layout("index_put", like_layout<0>);
  rules.add_layout("_unsafe_index_put", like_layout<0>);
  rules.add_layout("_index_put_impl", like_layout<0>);
  rules.add_layout("select_scatter", like_layout<0>);
  rules.add_layout("slice_scatter", like_layout<0>);
  rules.add_layout("as_strided_scatter", like_layout<0>);
  rules.add_layout("unfold_backward", listed_layout<1>);
  rules.add_layout("select_backward", listed_layout<1>);
  rules.add_layout("slice_backward", listed_layout<1>);
  rules.add_layout("diagonal_backward", listed_layout<1>);
}

}  // namespace ahead::ops::shapes
