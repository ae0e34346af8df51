#include "ops/shapes/pointwise.h"

#include <ATen/ExpandUtils.h>
#include <ATen/native/TypeProperties.h>

#include <algorithm>
#include <numeric>

#include "ops/shape_rules.h"
#include "ops/shapes/make.h"

namespace ahead::ops::shapes {
namespace {

using at::Tensor;
using Sizes = at::DimVector;

template <class Condition>
bool all_of(Operands operands, Condition holds) {
  return std::all_of(operands.begin(), operands.end(),
                     [&](const Tensor& operand) { return holds(operand); });
}

Sizes broadcast_sizes(Operands operands) {
  const Tensor& first = operands.front();
  Sizes sizes(first.sizes());
  for (const Tensor& operand : operands) {
    if (operand.sizes() != at::IntArrayRef(sizes)) {
      sizes = at::infer_size_dimvector(sizes, operand.sizes());
    }
  }
  return sizes;
}

// The stride with which an operand is read along a dimension of the result.
int64_t read_stride(const Tensor& operand, int64_t dim, const Sizes& sizes) {
  int64_t own = dim - (static_cast<int64_t>(sizes.size()) - operand.dim());
  if (own < 0) return 0;
  return operand.size(own) == sizes[dim] ? operand.stride(own) : 0;
}

enum class Order { kInner, kOuter, kUndecided };

// Whether dimension a belongs inside dimension b: the first operand that moves along both decides.
Order compare(int64_t a, int64_t b, const Sizes& sizes, Operands operands) {
  for (const Tensor& operand : operands) {
    int64_t stride_a = read_stride(operand, a, sizes);
    int64_t stride_b = read_stride(operand, b, sizes);
    if (stride_a == 0 || stride_b == 0) continue;
    if (stride_a != stride_b) return stride_a < stride_b ? Order::kInner : Order::kOuter;
    if (sizes[a] > sizes[b]) return Order::kOuter;
  }
  return Order::kUndecided;
}

// The dimensions from the innermost to the outermost. An insertion sort, because the order is only
// partial and the outcome of undecided comparisons must be TensorIterator's.
Sizes innermost_first(const Sizes& sizes, Operands operands) {
  Sizes dims(sizes.size());
  std::iota(dims.rbegin(), dims.rend(), 0);
  for (size_t i = 1; i < dims.size(); ++i) {
    size_t moving = i;
    for (size_t j = i; j-- > 0;) {
      Order order = compare(dims[j], dims[moving], sizes, operands);
      if (order == Order::kInner) break;
      if (order == Order::kUndecided) continue;
      std::swap(dims[j], dims[moving]);
      moving = j;
    }
  }
  return dims;
}

}  // namespace

at::ScalarType promoted(Operands operands) {
  at::native::ResultTypeState state;
  for (const Tensor& operand : operands) {
    state = at::native::update_result_type_state(operand, state);
  }
  return at::native::result_type(state);
}

Tensor converted(const Tensor& operand, at::ScalarType dtype) {
  const bool as_it_is = operand.scalar_type() == dtype || !rule_device().is_cpu();
  return as_it_is ? operand : make_like(operand, dtype);
}

Tensor make_pointwise(Operands operands, at::ScalarType dtype) {
  at::ScalarType common = promoted(operands);
  if (at::isIntegralType(common, /*includeBool=*/true) && at::isFloatingType(dtype)) common = dtype;
  if (all_of(operands, [&](const Tensor& t) { return t.scalar_type() == common; })) {
    return lay_out(operands, dtype);
  }
  c10::SmallVector<Tensor, 4> inputs;
  for (const Tensor& operand : operands) inputs.push_back(converted(operand, common));
  const c10::SmallVector<std::reference_wrapper<const Tensor>, 4> views(inputs.begin(),
                                                                        inputs.end());
  return lay_out(views, dtype);
}

Tensor lay_out(Operands operands, at::ScalarType dtype) {
  const Tensor& first = operands.front();
  if (all_of(operands, [&](const Tensor& t) { return t.sizes() == first.sizes(); })) {
    for (auto format : {at::MemoryFormat::Contiguous, at::MemoryFormat::ChannelsLast}) {
      if (all_of(operands, [&](const Tensor& t) { return t.is_contiguous(format); })) {
        return make(first.sizes(), dtype, format);
      }
    }
    auto same_and_dense = [&](const Tensor& t) {
      return t.strides() == first.strides() && t.is_non_overlapping_and_dense();
    };
    if (all_of(operands, same_and_dense))
      return make_strided(first.sizes(), first.strides(), dtype);
  }
  Sizes sizes = broadcast_sizes(operands);
  Sizes order = innermost_first(sizes, operands);
  // Not the same as below for empty results.
  if (std::is_sorted(order.rbegin(), order.rend())) return make(sizes, dtype);
  Sizes strides(sizes.size());
  int64_t next = 1;
  for (int64_t dim : order) {
    strides[dim] = next;
    next *= sizes[dim];
  }
  return make_strided(sizes, strides, dtype);
}

}  // namespace ahead::ops::shapes
