#include "ops/shapes/families.h"
#include "ops/shapes/layouts.h"
#include "ops/shapes/make.h"

namespace ahead::ops::shapes {
namespace {

using at::ScalarType;
using at::Tensor;
using Ints = std::vector<int64_t>;
using OptionalTensor = std::optional<Tensor>;
using TensorQuad = std::tuple<Tensor, Tensor, Tensor, Tensor>;

void check_indices(const Tensor& indices, const char* name) {
  TORCH_CHECK(indices.scalar_type() == at::kLong || indices.scalar_type() == at::kInt,
              "Expected tensor for argument '", name,
              "' to have one of the following scalar types: Long, Int; but got ",
              indices.scalar_type(), " instead");
}

/// One row for each index.
Dims embedding_sizes(Dims indices, Dim features) {
  indices.push_back(features);
  return indices;
}

Layouts embedding_layout(const LayoutCall& call) {
  return {Layout::contiguous(embedding_sizes(call.sizes(1), call.sizes(0)[1]))};
}

/// As many rows as an argument says, each as long as those of the gradient.
template <size_t Argument>
Layouts weight_layout(const LayoutCall& call) {
  return {Layout::contiguous({call.integer(Argument), call.sizes(0).back()})};
}

Tensor embedding(const Tensor& weight, const Tensor& indices, int64_t, bool, bool) {
  TORCH_CHECK(weight.dim() == 2, "'weight' must be 2-D");
  check_indices(indices, "indices");
  return make(embedding_sizes(indices.sizes(), weight.size(1)), weight.scalar_type());
}

Tensor embedding_dense_backward(const Tensor& grad, const Tensor& indices, int64_t num_weights,
                                int64_t, bool) {
  check_indices(indices, "indices");
  return make({num_weights, grad.size(-1)}, grad.scalar_type());
}

enum Mode : int64_t { kSum, kMean, kMax };

// Whether a sum on CPU does without knowing the bag of each index.
bool sums_in_one_pass(const Tensor& weight, const OptionalTensor& scales, int64_t padding_idx) {
  bool scales_fit = !scales || !scales->defined() || scales->stride(0) == 1;
  bool dtype_fits = weight.scalar_type() == at::kFloat || weight.scalar_type() == at::kHalf ||
                    weight.scalar_type() == at::kBFloat16;
  return scales_fit && dtype_fits && weight.stride(1) == 1 && padding_idx < 0;
}

struct Bags {
  int64_t offsets, bags, indices, features;
  ScalarType dtype;
};

TensorQuad bags_on_cpu(Bags sizes, ScalarType dtype, int64_t mode, bool one_pass,
                       bool differentiable) {
  bool needs_bag_of_index = mode != kSum || !one_pass;
  Ints bag_sizes{mode == kSum && !differentiable ? sizes.offsets : sizes.bags};
  return {make({sizes.bags, sizes.features}, dtype),
          make({needs_bag_of_index ? sizes.indices : 0}, sizes.dtype), make(bag_sizes, sizes.dtype),
          make(mode == kMax ? Ints{sizes.bags, sizes.features} : bag_sizes, sizes.dtype)};
}

TensorQuad bags_on_device(Bags sizes, ScalarType dtype, int64_t mode) {
  return {make({sizes.bags, sizes.features}, dtype), make({sizes.indices}, sizes.dtype),
          make({sizes.offsets}, sizes.dtype),
          make(mode == kMax ? Ints{sizes.bags, sizes.features} : Ints{0}, sizes.dtype)};
}

template <bool differentiable>
TensorQuad embedding_bag(const Tensor& weight, const Tensor& indices, const Tensor& offsets, bool,
                         int64_t mode, bool, const OptionalTensor& scales, bool include_last_offset,
                         int64_t padding_idx) {
  TORCH_CHECK(weight.dim() == 2 && indices.dim() == 1 && offsets.dim() == 1,
              "embedding_bag expects a matrix of weights and vectors of indices and offsets");
  check_indices(indices, "indices");
  check_indices(offsets, "offsets");
  TORCH_CHECK(!include_last_offset || offsets.size(0) >= 1,
              "include_last_offset: numBags should be at least 1");
  TORCH_CHECK(!scales || !scales->defined() || mode == kSum,
              "embedding_bag: per_sample_weights only supported with mode='sum'");
  Bags sizes{offsets.size(0), offsets.size(0) - include_last_offset, indices.size(0),
             weight.size(1), c10::promoteTypes(indices.scalar_type(), offsets.scalar_type())};
  if (!rule_device().is_cpu()) return bags_on_device(sizes, weight.scalar_type(), mode);
  return bags_on_cpu(sizes, weight.scalar_type(), mode,
                     sums_in_one_pass(weight, scales, padding_idx), differentiable);
}

Tensor embedding_bag_backward(const Tensor& grad, const Tensor&, const Tensor&, const Tensor&,
                              const Tensor&, const Tensor&, int64_t num_weights, bool, int64_t,
                              bool sparse, const OptionalTensor&, int64_t) {
  TORCH_CHECK(!sparse, "embedding_bag: a sparse gradient is made of other operators");
  return make({num_weights, grad.size(1)}, grad.scalar_type());
}

/// Described as the dense tensor of the same sizes: see ops/facts/sparse_values.h.
Tensor sparse_gradient(int64_t, int64_t, at::IntArrayRef sizes, const Tensor&, const Tensor& values,
                       std::optional<ScalarType> dtype, std::optional<at::Layout>,
                       std::optional<at::Device>, std::optional<bool>, std::optional<bool>) {
  return make(sizes, dtype.value_or(values.scalar_type()));
}

Tensor embedding_bag_dense_backward(const Tensor& grad, const Tensor&, const Tensor&, const Tensor&,
                                    const Tensor&, int64_t num_weights, bool, int64_t,
                                    const OptionalTensor&, int64_t) {
  return make({num_weights, grad.size(1)}, grad.scalar_type());
}

Tensor embedding_bag_per_sample_weights_backward(const Tensor& grad, const Tensor&,
                                                 const Tensor& indices, const Tensor&,
                                                 const Tensor&, int64_t mode, int64_t) {
  TORCH_CHECK(mode == kSum,
              "embedding_bag_backward: per_sample_weights only supported for mode='sum'");
  return make({indices.size(0)}, grad.scalar_type());
}

}  // namespace

void add_embedding_rules(ShapeRules& rules) {
  rules.add("embedding", TORCH_FN(embedding));
  rules.add("embedding_dense_backward", TORCH_FN(embedding_dense_backward));
  rules.add("_embedding_bag", TORCH_FN(embedding_bag<true>));
  rules.add("_embedding_bag_forward_only", TORCH_FN(embedding_bag<false>));
  rules.add("_embedding_bag_backward", TORCH_FN(embedding_bag_backward));
  rules.add("_embedding_bag_dense_backward", TORCH_FN(embedding_bag_dense_backward));
  rules.add("_embedding_bag_per_sample_weights_backward",
            TORCH_FN(embedding_bag_per_sample_weights_backward));
  rules.add("_sparse_coo_tensor_with_dims_and_tensors", TORCH_FN(sparse_gradient));
  rules.add_layout("embedding", embedding_layout);
  rules.add_layout("_sparse_coo_tensor_with_dims_and_tensors", listed_layout<2>);
  rules.add_layout("embedding_dense_backward", weight_layout<2>);
  rules.add_layout("_embedding_bag_backward", weight_layout<6>);
  rules.add_layout("_embedding_bag_dense_backward", weight_layout<5>);
}

}  // namespace ahead::ops::shapes
