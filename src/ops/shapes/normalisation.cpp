#include <ATen/ops/all.h>
#include <ATen/ops/eq.h>
#include <ATen/ops/softmax.h>

#include "ops/shapes/families.h"
#include "ops/shapes/layouts.h"
#include "ops/shapes/make.h"
#include "ops/shapes/pointwise.h"

namespace ahead::ops::shapes {
namespace {

using at::IntArrayRef;
using at::MemoryFormat;
using at::ScalarType;
using at::Tensor;
using Ints = std::vector<int64_t>;
using OptionalTensor = std::optional<Tensor>;
using TensorPair = std::tuple<Tensor, Tensor>;
using TensorTriple = std::tuple<Tensor, Tensor, Tensor>;
using TensorQuad = std::tuple<Tensor, Tensor, Tensor, Tensor>;

bool is_defined(const OptionalTensor& t) {
  return t && t->defined();
}

// The dtype of statistics and of parameter gradients on CPU: float if a 16-bit input has float
// parameters, else the input's.
ScalarType parameter_dtype(const Tensor& input, std::initializer_list<const OptionalTensor*> all) {
  auto dtype = input.scalar_type();
  for (auto* parameter : all) {
    if (is_defined(*parameter) && (*parameter)->scalar_type() == at::kFloat) {
      return accumulate_type(dtype);
    }
  }
  return dtype;
}

// The dtype of saved statistics: CUDA keeps them in the accumulation type always.
ScalarType statistics_dtype(const Tensor& input, std::initializer_list<const OptionalTensor*> all) {
  return rule_device().is_cpu() ? parameter_dtype(input, all)
                                : accumulate_type(input.scalar_type());
}

// Softmax of rows that may be hidden altogether.

Tensor safe_softmax(const Tensor& self, int64_t dim, std::optional<ScalarType> dtype) {
  auto softmax = at::softmax(self, dim, dtype);
  auto hidden_rows = at::all(at::eq(self, 0), dim, /*keepdim=*/true);
  return lay_out({hidden_rows, softmax}, softmax.scalar_type());
}

// Layer and RMS norm.

Ints statistics_sizes(const Tensor& input, IntArrayRef normalized_shape) {
  auto sizes = input.sizes();
  auto dims = normalized_shape.size();
  TORCH_CHECK(dims >= 1, "Expected normalized_shape to be at least 1-dimensional");
  TORCH_CHECK(sizes.size() >= dims && sizes.slice(sizes.size() - dims) == normalized_shape,
              "Given normalized_shape=", normalized_shape, ", expected input with shape [*, ",
              normalized_shape, "], but got input of size", sizes);
  Ints result(sizes.begin(), sizes.end() - dims);
  result.resize(sizes.size(), 1);
  return result;
}

void check_parameter(const OptionalTensor& parameter, IntArrayRef normalized_shape) {
  TORCH_CHECK(!is_defined(parameter) || parameter->sizes() == normalized_shape,
              "Expected weight and bias to be of same shape as normalized_shape, but got ",
              parameter->sizes(), " and normalized_shape = ", normalized_shape);
}

TensorTriple layer_norm(const Tensor& input, IntArrayRef normalized_shape,
                        const OptionalTensor& weight, const OptionalTensor& bias, double) {
  auto sizes = statistics_sizes(input, normalized_shape);
  check_parameter(weight, normalized_shape);
  check_parameter(bias, normalized_shape);
  auto dtype = statistics_dtype(input, {&weight, &bias});
  return {make(input.sizes(), input.scalar_type()), make(sizes, dtype), make(sizes, dtype)};
}

Tensor gradient_of(const OptionalTensor& parameter) {
  TORCH_CHECK(is_defined(parameter), "the gradient of an undefined parameter was asked for");
  return make(parameter->sizes(), parameter->scalar_type());
}

TensorTriple layer_norm_backward(const Tensor&, const Tensor& input, IntArrayRef, const Tensor&,
                                 const Tensor&, const OptionalTensor& weight,
                                 const OptionalTensor& bias, std::array<bool, 3> mask) {
  return {mask[0] ? make(input.sizes(), input.scalar_type()) : Tensor(),
          mask[1] ? gradient_of(weight) : Tensor(), mask[2] ? gradient_of(bias) : Tensor()};
}

TensorPair rms_norm(const Tensor& input, IntArrayRef normalized_shape, const OptionalTensor& weight,
                    std::optional<double>) {
  check_parameter(weight, normalized_shape);
  return {make(input.sizes(), input.scalar_type()),
          make(statistics_sizes(input, normalized_shape), accumulate_type(input.scalar_type()))};
}

TensorPair rms_norm_backward(const Tensor&, const Tensor& input, IntArrayRef, const Tensor&,
                             const OptionalTensor& weight, std::array<bool, 2> mask) {
  return {mask[0] ? make(input.sizes(), input.scalar_type()) : Tensor(),
          mask[1] && is_defined(weight) ? gradient_of(weight) : Tensor()};
}

// Batch norm.

// The memory format of a tensor that has one; where sizes of one leave a choice, contiguous.
MemoryFormat packed_format(const Tensor& self) {
  if (self.is_contiguous()) return MemoryFormat::Contiguous;
  return self.is_contiguous(MemoryFormat::ChannelsLast3d) ? MemoryFormat::ChannelsLast3d
                                                          : MemoryFormat::ChannelsLast;
}

bool is_packed(const Tensor& self) {
  return self.is_contiguous(packed_format(self));
}

// On CPU the result is channels-last only if the argument is so and not contiguous as well.
Tensor normalized(const Tensor& self, std::initializer_list<const OptionalTensor*> parameters) {
  if (!rule_device().is_cpu()) return make_like(self);
  auto format = packed_format(self);
  bool keep = self.is_contiguous(format);
  for (auto* p : parameters) keep = keep && (!is_defined(*p) || (*p)->is_contiguous());
  return make(self.sizes(), self.scalar_type(), keep ? format : MemoryFormat::Contiguous);
}

void check_channels(const Tensor& input, std::initializer_list<const OptionalTensor*> parameters) {
  TORCH_CHECK(input.dim() >= 2, "batch norm expects an input of at least two dimensions, but got ",
              input.sizes());
  for (auto* p : parameters) {
    TORCH_CHECK(!is_defined(*p) || (*p)->numel() == input.size(1), "parameters should contain ",
                input.size(1), " elements not ", (*p)->numel());
  }
}

TensorTriple batch_norm(const Tensor& input, const OptionalTensor& weight,
                        const OptionalTensor& bias, const OptionalTensor& mean,
                        const OptionalTensor& var, bool training) {
  check_channels(input, {&weight, &bias, &mean, &var});
  TORCH_CHECK(!training || input.numel() > 0,
              "input tensor must have at least one element, but got input_sizes = ", input.sizes());
  auto dtype = statistics_dtype(input, {&weight, &bias, &mean, &var});
  int64_t saved = training || !rule_device().is_cpu() ? input.size(1) : 0;
  return {normalized(input, {&weight, &bias, &mean, &var}), make({saved}, dtype),
          make({saved}, dtype)};
}

TensorTriple native_batch_norm(const Tensor& input, const OptionalTensor& weight,
                               const OptionalTensor& bias, const OptionalTensor& mean,
                               const OptionalTensor& var, bool training, double, double) {
  return batch_norm(input, weight, bias, mean, var, training);
}

TensorTriple batch_norm_no_stats(const Tensor& input, const OptionalTensor& weight,
                                 const OptionalTensor& bias, bool training, double, double) {
  return batch_norm(input, weight, bias, std::nullopt, std::nullopt, training);
}

TensorTriple batch_norm_no_training(const Tensor& input, const OptionalTensor& weight,
                                    const OptionalTensor& bias, const Tensor& mean,
                                    const Tensor& var, double, double) {
  return batch_norm(input, weight, bias, mean, var, false);
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> batch_norm_functional(
    const Tensor& input, const OptionalTensor& weight, const OptionalTensor& bias,
    const Tensor& mean, const Tensor& var, bool training, double, double) {
  return std::tuple_cat(batch_norm(input, weight, bias, mean, var, training),
                        TensorPair(make_like(mean), make_like(var)));
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor> batch_norm_with_update(
    const Tensor& input, const OptionalTensor& weight, const OptionalTensor& bias,
    const Tensor& mean, const Tensor& var, double, double) {
  TORCH_CHECK_NOT_IMPLEMENTED(rule_device().is_cpu(),
                              "_batch_norm_with_update: only cuDNN knows how much it keeps");
  return std::tuple_cat(
      batch_norm(input, weight, bias, mean, var, true),
      std::tuple<Tensor, Tensor, Tensor>(make({0}, at::kByte), make_like(mean), make_like(var)));
}

TensorQuad batch_norm_no_update(const Tensor& input, const OptionalTensor& weight,
                                const OptionalTensor& bias, const OptionalTensor& mean,
                                const OptionalTensor& var, double, double) {
  return std::tuple_cat(batch_norm(input, weight, bias, mean, var, false),
                        std::tuple<Tensor>(make({0}, at::kByte)));
}

TensorPair batch_norm_update_stats(const Tensor& input, const OptionalTensor& mean,
                                   const OptionalTensor& var, double) {
  check_channels(input, {&mean, &var});
  auto dtype = statistics_dtype(input, {&mean, &var});
  return {make({input.size(1)}, dtype), make({input.size(1)}, dtype)};
}

Tensor batch_norm_grad_input(const Tensor& grad, const Tensor& input) {
  if (!rule_device().is_cpu()) return make_like(input);
  auto format = input.suggest_memory_format();
  bool packed = is_packed(input) && is_packed(grad) && format == grad.suggest_memory_format();
  return make(input.sizes(), input.scalar_type(), packed ? packed_format(input) : format);
}

TensorTriple batch_norm_gradients(const Tensor& grad, const Tensor& input, ScalarType dtype,
                                  std::array<bool, 3> mask) {
  return {mask[0] ? batch_norm_grad_input(grad, input) : Tensor(),
          mask[1] ? make({input.size(1)}, dtype) : Tensor(),
          mask[2] ? make({input.size(1)}, dtype) : Tensor()};
}

TensorTriple native_batch_norm_backward(const Tensor& grad, const Tensor& input,
                                        const OptionalTensor& weight, const OptionalTensor& mean,
                                        const OptionalTensor& var, const OptionalTensor& save_mean,
                                        const OptionalTensor& save_var, bool, double,
                                        std::array<bool, 3> mask) {
  return batch_norm_gradients(
      grad, input, statistics_dtype(input, {&weight, &mean, &var, &save_mean, &save_var}), mask);
}

TensorTriple batch_norm_backward(const Tensor& grad, const Tensor& input, const Tensor& weight,
                                 const OptionalTensor& mean, const OptionalTensor& var,
                                 const OptionalTensor& save_mean, const OptionalTensor& save_var,
                                 bool, double, std::array<bool, 3> mask, const Tensor&) {
  OptionalTensor optional_weight = weight;
  return batch_norm_gradients(
      grad, input, statistics_dtype(input, {&optional_weight, &mean, &var, &save_mean, &save_var}),
      mask);
}

TensorTriple cudnn_batch_norm_backward(const Tensor& input, const Tensor&, const Tensor& weight,
                                       const OptionalTensor&, const OptionalTensor&,
                                       const OptionalTensor&, const OptionalTensor&, double,
                                       const Tensor&) {
  return {make(input.sizes(), input.scalar_type(), input.suggest_memory_format()),
          make(weight.sizes(), weight.scalar_type()), make(weight.sizes(), weight.scalar_type())};
}

// The parts of batch norm over several processes (CUDA only).

TensorPair batch_norm_stats(const Tensor& input, double) {
  auto dtype = accumulate_type(input.scalar_type());
  return {make({input.size(1)}, dtype), make({input.size(1)}, dtype)};
}

Tensor batch_norm_elemt(const Tensor& input, const OptionalTensor&, const OptionalTensor&,
                        const Tensor&, const Tensor&, double) {
  return make_like(input);
}

TensorPair gathered(const Tensor& input, const Tensor& mean) {
  auto dtype = accumulate_type(input.scalar_type());
  return {make({mean.size(1)}, dtype), make({mean.size(1)}, dtype)};
}

TensorPair batch_norm_gather_stats(const Tensor& input, const Tensor& mean, const Tensor&,
                                   const OptionalTensor&, const OptionalTensor&, double, double,
                                   int64_t) {
  return gathered(input, mean);
}

TensorPair batch_norm_gather_stats_with_counts(const Tensor& input, const Tensor& mean,
                                               const Tensor&, const OptionalTensor&,
                                               const OptionalTensor&, double, double,
                                               const Tensor&) {
  return gathered(input, mean);
}

TensorQuad batch_norm_backward_reduce(const Tensor&, const Tensor& input, const Tensor& mean,
                                      const Tensor&, const OptionalTensor& weight, bool input_g,
                                      bool weight_g, bool bias_g) {
  Ints sizes{input.size(1)};
  auto dtype = is_defined(weight) ? weight->scalar_type() : input.scalar_type();
  return {input_g ? make(sizes, mean.scalar_type()) : Tensor(),
          input_g ? make(sizes, mean.scalar_type()) : Tensor(),
          weight_g ? make(sizes, dtype) : Tensor(), bias_g ? make(sizes, dtype) : Tensor()};
}

Tensor batch_norm_backward_elemt(const Tensor&, const Tensor& input, const Tensor&, const Tensor&,
                                 const OptionalTensor&, const Tensor&, const Tensor&,
                                 const Tensor&) {
  return make_like(input);
}

// Group norm.

MemoryFormat group_norm_format(const Tensor& input) {
  return rule_device().is_cpu() ? input.suggest_memory_format() : MemoryFormat::Contiguous;
}

TensorTriple group_norm(const Tensor& input, const OptionalTensor& weight,
                        const OptionalTensor& bias, int64_t n, int64_t c, int64_t hxw,
                        int64_t group, double) {
  TORCH_CHECK(group > 0 && c % group == 0,
              "Expected number of channels in input to be divisible "
              "by num_groups, but got input of shape ",
              input.sizes(), " and num_groups=", group);
  TORCH_CHECK(input.numel() == n * c * hxw, "group norm: the input of size ", input.sizes(),
              " does not have ", n, " x ", c, " x ", hxw, " elements");
  auto format = group_norm_format(input);
  TORCH_CHECK(input.is_contiguous(format), "native_group_norm expects a contiguous input");
  auto dtype = parameter_dtype(input, {&weight, &bias});
  return {make(input.sizes(), input.scalar_type(), format), make({n, group}, dtype),
          make({n, group}, dtype)};
}

TensorTriple group_norm_backward(const Tensor&, const Tensor& input, const Tensor&, const Tensor&,
                                 const OptionalTensor& weight, int64_t, int64_t, int64_t, int64_t,
                                 std::array<bool, 3> mask) {
  return {mask[0] ? make(input.sizes(), input.scalar_type(), group_norm_format(input)) : Tensor(),
          mask[1] ? gradient_of(weight) : Tensor(), mask[2] ? gradient_of(weight) : Tensor()};
}

// Weight norm.

TensorPair weight_norm(const Tensor& v, const Tensor& g, int64_t) {
  return {make(v.sizes(), v.scalar_type()),
          make_strided(g.sizes(), g.strides(), accumulate_type(g.scalar_type()))};
}

TensorPair weight_norm_backward(const Tensor&, const Tensor& v, const Tensor& g, const Tensor&,
                                int64_t) {
  return {make(v.sizes(), v.scalar_type()), make(g.sizes(), g.scalar_type())};
}

}  // namespace

void add_normalisation_rules(ShapeRules& rules) {
  rules.add("_safe_softmax", TORCH_FN(safe_softmax));
  rules.add("native_layer_norm", TORCH_FN(layer_norm));
  rules.add("native_layer_norm_backward", TORCH_FN(layer_norm_backward));
  rules.add("_fused_rms_norm", TORCH_FN(rms_norm));
  rules.add("_fused_rms_norm_backward", TORCH_FN(rms_norm_backward));
  rules.add("native_batch_norm", TORCH_FN(native_batch_norm));
  rules.add("_native_batch_norm_legit.no_stats", TORCH_FN(batch_norm_no_stats));
  rules.add("_native_batch_norm_legit_no_training", TORCH_FN(batch_norm_no_training));
  rules.add("_native_batch_norm_legit_functional", TORCH_FN(batch_norm_functional));
  rules.add("_batch_norm_with_update_functional", TORCH_FN(batch_norm_with_update));
  rules.add("_batch_norm_no_update", TORCH_FN(batch_norm_no_update));
  rules.add("batch_norm_update_stats", TORCH_FN(batch_norm_update_stats));
  rules.add("native_batch_norm_backward", TORCH_FN(native_batch_norm_backward));
  rules.add("batch_norm_backward", TORCH_FN(batch_norm_backward));
  // How much it keeps for its backward is known to cuDNN only.
  rules.add_unknowable("cudnn_batch_norm");
  rules.add("cudnn_batch_norm_backward", TORCH_FN(cudnn_batch_norm_backward));
  rules.add("batch_norm_stats", TORCH_FN(batch_norm_stats));
  rules.add("batch_norm_elemt", TORCH_FN(batch_norm_elemt));
  rules.add("batch_norm_gather_stats", TORCH_FN(batch_norm_gather_stats));
  rules.add("batch_norm_gather_stats_with_counts", TORCH_FN(batch_norm_gather_stats_with_counts));
  rules.add("batch_norm_backward_reduce", TORCH_FN(batch_norm_backward_reduce));
  rules.add("batch_norm_backward_elemt", TORCH_FN(batch_norm_backward_elemt));
  rules.add("native_group_norm", TORCH_FN(group_norm));
  rules.add("native_group_norm_backward", TORCH_FN(group_norm_backward));
  rules.add("_weight_norm_interface", TORCH_FN(weight_norm));
  rules.add("_weight_norm_interface_backward", TORCH_FN(weight_norm_backward));
  rules.add_layout("native_layer_norm_backward", like_layout<1, 5, 6>);
  rules.add_layout("native_batch_norm_backward", like_and_channels_layout<1>);
  rules.add_layout("native_group_norm_backward", like_and_channels_layout<1>);
  rules.add_layout("_weight_norm_interface_backward", like_layout<1, 2>);
}

}  // namespace ahead::ops::shapes
