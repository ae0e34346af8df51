#include <tuple>

#include "ops/shapes/families.h"
#include "ops/shapes/layouts.h"
#include "ops/shapes/make.h"

namespace ahead::ops::shapes {
namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;
using Gradients = std::tuple<Tensor, Tensor, Tensor>;

void check_attention(const Tensor& query, const Tensor& key, const Tensor& value) {
  TORCH_CHECK(query.dim() == 4 && key.dim() == 4 && value.dim() == 4,
              "scaled_dot_product_attention: expected query, key and value of 4 dimensions");
  TORCH_CHECK(query.size(3) == key.size(3),
              "scaled_dot_product_attention: query and key must have the same head size");
}

// A batch of heads as the kernels keep it in memory: time before heads.
Tensor heads_last(at::IntArrayRef sizes, at::ScalarType dtype) {
  const int64_t heads = sizes[1], time = sizes[2], width = sizes[3];
  return make_strided(sizes, {time * heads * width, width, heads * width, 1}, dtype);
}

Tensor heads_last_like(const Tensor& tensor) {
  return heads_last(tensor.sizes(), tensor.scalar_type());
}

// Reduced precision keeps its statistics in single precision.
at::ScalarType statistics_type(at::ScalarType dtype) {
  return at::isReducedFloatingType(dtype) ? at::kFloat : dtype;
}

std::tuple<Tensor, Tensor> flash_for_cpu(const Tensor& query, const Tensor& key,
                                         const Tensor& value, double, bool, const OptionalTensor&,
                                         std::optional<double>) {
  check_attention(query, key, value);
  const int64_t batch = query.size(0), heads = query.size(1), time = query.size(2);
  Tensor log_sum = make_strided({batch, heads, time}, {time * heads, 1, heads},
                                statistics_type(query.scalar_type()));
  return {make_like(query), log_sum};
}

Gradients flash_for_cpu_backward(const Tensor&, const Tensor& query, const Tensor& key,
                                 const Tensor& value, const Tensor&, const Tensor&, double, bool,
                                 const OptionalTensor&, std::optional<double>) {
  return {heads_last_like(query), heads_last_like(key), heads_last_like(value)};
}

std::tuple<Tensor, Tensor, Tensor, Tensor, int64_t, int64_t, Tensor, Tensor, Tensor> flash(
    const Tensor& query, const Tensor& key, const Tensor& value, double, bool,
    bool return_debug_mask, std::optional<double>) {
  check_attention(query, key, value);
  TORCH_CHECK_NOT_IMPLEMENTED(!return_debug_mask, "flash attention: no rule for the debug mask");
  Tensor log_sum = make({query.size(0), query.size(1), query.size(2)}, at::kFloat);
  return {make_like(query),
          log_sum,
          Tensor(),
          Tensor(),
          query.size(2),
          key.size(2),
          make({2}, at::kUInt64),
          make({}, at::kUInt64),
          make({0}, query.scalar_type())};
}

Gradients flash_backward(const Tensor&, const Tensor& query, const Tensor& key, const Tensor& value,
                         const Tensor&, const Tensor&, const Tensor&, const Tensor&, int64_t,
                         int64_t, double, bool, const Tensor&, const Tensor&,
                         std::optional<double>) {
  return {make_like(query), make_like(key), make_like(value)};
}

std::tuple<Tensor, Tensor, Tensor, Tensor> efficient(const Tensor& query, const Tensor& key,
                                                     const Tensor& value, const OptionalTensor&,
                                                     bool compute_log_sum, double, bool,
                                                     std::optional<double>) {
  check_attention(query, key, value);
  constexpr int64_t block = 32;
  const int64_t batch = query.size(0), heads = query.size(1), time = query.size(2);
  const int64_t padded = compute_log_sum ? (time + block - 1) / block * block : 0;
  return {heads_last({batch, heads, time, value.size(3)}, query.scalar_type()),
          make({batch, heads, padded}, at::kFloat), make({}, at::kLong), make({}, at::kLong)};
}

std::tuple<Tensor, Tensor, Tensor, Tensor> efficient_backward(
    const Tensor&, const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& bias,
    const Tensor&, const Tensor&, const Tensor&, const Tensor&, double, std::array<bool, 4> mask,
    bool, std::optional<double>) {
  Tensor bias_gradient;
  if (bias.defined() && mask[3]) {
    // Rows are padded to what the kernel can load at once.
    constexpr int64_t alignment = 16;
    std::vector<int64_t> strides(bias.sizes().size(), 1);
    int64_t stride = (bias.size(-1) + alignment - 1) / alignment * alignment;
    for (size_t dim = strides.size() - 1; dim-- > 0;) {
      strides[dim] = stride;
      stride *= bias.size(static_cast<int64_t>(dim));
    }
    bias_gradient = make_strided(bias.sizes(), strides, bias.scalar_type());
  }
  return {heads_last_like(query), heads_last_like(key), heads_last_like(value), bias_gradient};
}

}  // namespace

void add_attention_rules(ShapeRules& rules) {
  rules.add("_scaled_dot_product_flash_attention_for_cpu", TORCH_FN(flash_for_cpu));
  rules.add("_scaled_dot_product_flash_attention_for_cpu_backward",
            TORCH_FN(flash_for_cpu_backward));
  rules.add("_scaled_dot_product_flash_attention", TORCH_FN(flash));
  rules.add("_scaled_dot_product_flash_attention_backward", TORCH_FN(flash_backward));
  rules.add("_scaled_dot_product_efficient_attention", TORCH_FN(efficient));
  rules.add("_scaled_dot_product_efficient_attention_backward", TORCH_FN(efficient_backward));
  rules.add_layout("_scaled_dot_product_flash_attention_for_cpu_backward", like_layout<1, 2, 3>);
  rules.add_layout("_scaled_dot_product_flash_attention_backward", like_layout<1, 2, 3>);
  rules.add_layout("_scaled_dot_product_efficient_attention_backward", like_layout<1, 2, 3, 4>);
}

}  // namespace ahead::ops::shapes
