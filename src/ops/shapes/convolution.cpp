#include <ATen/native/ConvUtils.h>

#include "ops/shapes/device_view.h"
#include "ops/shapes/families.h"
#include "ops/shapes/layouts.h"
#include "ops/shapes/make.h"
#include "ops/shapes/pointwise.h"

namespace ahead::ops::shapes {
namespace {

using at::IntArrayRef;
using at::MemoryFormat;
using at::Tensor;
using at::native::ConvBackend;
using OptionalTensor = std::optional<Tensor>;
using Ints = std::vector<int64_t>;
using TensorTriple = std::tuple<Tensor, Tensor, Tensor>;

struct Parameters {
  Ints stride, padding, dilation;
  bool transposed;
  Ints output_padding;
  int64_t groups;
};

Ints expand(IntArrayRef values, const char* name, int64_t dims) {
  if (values.size() == 1) return Ints(dims, values[0]);
  TORCH_CHECK(static_cast<int64_t>(values.size()) == dims, "expected ", name,
              " to be a single integer value or a list of ", dims,
              " values to match the convolution dimensions, but got ", name, "=", values);
  return values.vec();
}

Parameters parameters(const Tensor& weight, IntArrayRef stride, IntArrayRef padding,
                      IntArrayRef dilation, bool transposed, IntArrayRef output_padding,
                      int64_t groups) {
  int64_t dims = weight.dim() - 2;
  TORCH_CHECK(dims > 0, "weight should have at least three dimensions");
  TORCH_CHECK(groups > 0, "non-positive groups is not supported");
  return {expand(stride, "stride", dims),
          expand(padding, "padding", dims),
          expand(dilation, "dilation", dims),
          transposed,
          expand(output_padding, "output_padding", dims),
          groups};
}

bool any_below(const Ints& values, int64_t bound) {
  return std::any_of(values.begin(), values.end(), [&](int64_t v) { return v < bound; });
}

void check_shapes(const Tensor& input, const Tensor& weight, const OptionalTensor& bias,
                  const Parameters& p) {
  TORCH_CHECK(!any_below(p.padding, 0), "negative padding is not supported");
  TORCH_CHECK(!any_below(p.output_padding, 0), "negative output_padding is not supported");
  TORCH_CHECK(!any_below(p.stride, 1), "non-positive stride is not supported");
  TORCH_CHECK(!any_below(p.dilation, 1), "dilation should be greater than zero");
  TORCH_CHECK(input.dim() == weight.dim(), "Expected ", weight.dim(), "-dimensional input for ",
              weight.dim(), "-dimensional weight ", weight.sizes(), ", but got ", input.dim(),
              "-dimensional input of size ", input.sizes(), " instead");
  TORCH_CHECK(weight.size(0) >= p.groups && weight.size(0) % p.groups == 0,
              "Given groups=", p.groups, ", expected weight to be at least and divisible by ",
              p.groups, " at dimension 0, but got weight of size ", weight.sizes(), " instead");
  int64_t channels = p.transposed ? weight.size(0) : weight.size(1) * p.groups;
  TORCH_CHECK(input.size(1) == channels, "Given groups=", p.groups, ", weight of size ",
              weight.sizes(), ", expected input", input.sizes(), " to have ", channels,
              " channels, but got ", input.size(1), " channels instead");
  int64_t results = p.transposed ? weight.size(1) * p.groups : weight.size(0);
  TORCH_CHECK(!bias || !bias->defined() || (bias->dim() == 1 && bias->size(0) == results),
              "Given weight of size ", weight.sizes(), ", expected bias to be 1-dimensional with ",
              results, " elements, but got bias of another size instead");
}

Ints output_sizes(const Tensor& input, const Tensor& weight, const Parameters& p) {
  Ints sizes{input.size(0), p.transposed ? weight.size(1) * p.groups : weight.size(0)};
  if (input.size(1) == 0) sizes[1] = 0;
  for (int64_t i = 0; i < input.dim() - 2; ++i) {
    int64_t in = input.size(i + 2);
    int64_t reach = p.dilation[i] * (weight.size(i + 2) - 1) + 1;
    int64_t padded = in + 2 * p.padding[i];
    TORCH_CHECK(p.transposed || padded >= reach, "Calculated padded input size per channel: (",
                padded, "). Kernel size: (", reach,
                "). Kernel size can't be greater than actual input size");
    sizes.push_back(p.transposed
                        ? (in - 1) * p.stride[i] - 2 * p.padding[i] + reach + p.output_padding[i]
                        : (padded - reach) / p.stride[i] + 1);
    TORCH_CHECK(sizes.back() > 0 || in == 0, "Calculated output size per channel is too small");
  }
  return sizes;
}

// One-dimensional convolutions run as two-dimensional ones of height 1; these take the tensor there
// and back.
Tensor with_height(const Tensor& t, bool contiguous = false) {
  auto base = contiguous && !t.is_contiguous() ? make(t.sizes(), t.scalar_type()) : t;
  Ints sizes = base.sizes().vec(), strides = base.strides().vec();
  int64_t stride = sizes[2] * strides[2];
  sizes.insert(sizes.begin() + 2, 1);
  strides.insert(strides.begin() + 2, stride);
  return make_strided(sizes, strides, t.scalar_type());
}

Tensor without_height(const Tensor& t) {
  if (!t.defined()) return t;
  Ints sizes = t.sizes().vec(), strides = t.strides().vec();
  sizes.erase(sizes.begin() + 2);
  strides.erase(strides.begin() + 2);
  return make_strided(sizes, strides, t.scalar_type());
}

Parameters with_height(Parameters p) {
  p.stride.insert(p.stride.begin(), 1);
  p.padding.insert(p.padding.begin(), 0);
  p.dilation.insert(p.dilation.begin(), 1);
  p.output_padding.insert(p.output_padding.begin(), 0);
  return p;
}

struct Choice {
  ConvBackend backend;
  MemoryFormat format;
};

Choice choose(const Tensor& input, const Tensor& weight, const Parameters& p) {
  auto symbolic = [](const Ints& values) { return c10::fromIntArrayRefSlow(values); };
  Tensor on_device = as_on_device(input), weight_on_device = as_on_device(weight);
  auto backend = at::native::select_conv_backend(
      on_device, weight_on_device, std::nullopt, symbolic(p.stride), symbolic(p.padding),
      symbolic(p.dilation), p.transposed, symbolic(p.output_padding), p.groups, std::nullopt);
  return {backend,
          at::native::_determine_backend_memory_format(on_device, weight_on_device, backend)};
}

Tensor convolution(const Tensor& input, const Tensor& weight, const OptionalTensor& bias,
                   const Parameters& p) {
  check_shapes(input, weight, bias, p);
  if (weight.dim() == 3) {
    return without_height(
        convolution(with_height(input, true), with_height(weight), bias, with_height(p)));
  }
  return make(output_sizes(input, weight, p), input.scalar_type(), choose(input, weight, p).format);
}

Tensor convolution_rule(const Tensor& input, const Tensor& weight, const OptionalTensor& bias,
                        IntArrayRef stride, IntArrayRef padding, IntArrayRef dilation,
                        bool transposed, IntArrayRef output_padding, int64_t groups) {
  return convolution(
      input, weight, bias,
      parameters(weight, stride, padding, dilation, transposed, output_padding, groups));
}

Tensor convolution_with_settings(const Tensor& input, const Tensor& weight,
                                 const OptionalTensor& bias, IntArrayRef stride,
                                 IntArrayRef padding, IntArrayRef dilation, bool transposed,
                                 IntArrayRef output_padding, int64_t groups, bool, bool, bool,
                                 bool) {
  return convolution_rule(input, weight, bias, stride, padding, dilation, transposed,
                          output_padding, groups);
}

// The two-dimensional fallback kernels take the format of a weight that is in the chosen format,
// which may be contiguous at the same time.
MemoryFormat grad_weight_format(const Tensor& weight, Choice choice) {
  bool follows_weight =
      choice.backend == ConvBackend::Slow2d || choice.backend == ConvBackend::SlowTranspose2d;
  return follows_weight && weight.is_contiguous(choice.format) ? weight.suggest_memory_format()
                                                               : choice.format;
}

TensorTriple backward(const Tensor& grad, const Tensor& input, const Tensor& weight,
                      const Parameters& p, std::array<bool, 3> mask) {
  auto choice = choose(input, weight, p);
  TensorTriple result;
  auto& [grad_input, grad_weight, grad_bias] = result;
  if (mask[2]) grad_bias = make({grad.size(1)}, grad.scalar_type());
  if (choice.backend == ConvBackend::Empty) {
    if (mask[0]) grad_input = make_like(input);
    if (mask[1]) grad_weight = make_like(weight);
    return result;
  }
  if (mask[0]) grad_input = make(input.sizes(), input.scalar_type(), choice.format);
  // oneDNN computes the gradients of weight and bias together.
  bool one_dnn = choice.backend == ConvBackend::Mkldnn ||  //
                 choice.backend == ConvBackend::MkldnnTranspose;
  if (mask[1] || (one_dnn && mask[2])) {
    grad_weight = make(weight.sizes(), weight.scalar_type(), grad_weight_format(weight, choice));
  }
  return result;
}

TensorTriple convolution_backward(const Tensor& grad, const Tensor& input, const Tensor& weight,
                                  at::OptionalIntArrayRef, IntArrayRef stride, IntArrayRef padding,
                                  IntArrayRef dilation, bool transposed, IntArrayRef output_padding,
                                  int64_t groups, std::array<bool, 3> mask) {
  auto p = parameters(weight, stride, padding, dilation, transposed, output_padding, groups);
  check_shapes(input, weight, std::nullopt, p);
  auto expected = output_sizes(input, weight, p);
  TORCH_CHECK(input.numel() == 0 || grad.sizes() == IntArrayRef(expected),
              "Expected grad_output of size ", expected, ", but got ", grad.sizes(), " instead");
  if (weight.dim() > 3) return backward(grad, input, weight, p, mask);
  auto [grad_input, grad_weight, grad_bias] = backward(with_height(grad), with_height(input, true),
                                                       with_height(weight), with_height(p), mask);
  return {without_height(grad_input), mask[1] ? without_height(grad_weight) : grad_weight,
          grad_bias};
}

// The kernels behind `convolution`, which are operators of their own. Those for two dimensions on
// CPU know channels-last; cuDNN knows it in two and three dimensions.

MemoryFormat format_of_either(const Tensor& input, const Tensor& weight) {
  auto format = weight.dim() == 5 ? MemoryFormat::ChannelsLast3d : MemoryFormat::ChannelsLast;
  bool either = input.suggest_memory_format() == format || weight.suggest_memory_format() == format;
  return either ? format : MemoryFormat::Contiguous;
}

MemoryFormat slow_format(const Tensor& input, const Tensor& weight) {
  bool knows_channels_last = rule_device().is_cpu() && weight.dim() == 4;
  return knows_channels_last ? format_of_either(input, weight) : MemoryFormat::Contiguous;
}

Tensor slow(const Tensor& input, const Tensor& weight, const OptionalTensor& bias,
            const Parameters& p) {
  if (input.dim() == weight.dim()) {
    check_shapes(input, weight, bias, p);
    return make(output_sizes(input, weight, p), input.scalar_type(), slow_format(input, weight));
  }
  Ints sizes = input.sizes().vec();
  sizes.insert(sizes.begin(), 1);
  auto batched = make(sizes, input.scalar_type());
  check_shapes(batched, weight, bias, p);
  Ints result = output_sizes(batched, weight, p);
  return make(IntArrayRef(result).slice(1), input.scalar_type(), slow_format(input, weight));
}

Parameters plain(const Tensor& weight, IntArrayRef stride, IntArrayRef padding,
                 IntArrayRef dilation = 1, int64_t groups = 1) {
  return parameters(weight, stride, padding, dilation, false, 0, groups);
}

Tensor slow_conv(const Tensor& input, const Tensor& weight, IntArrayRef, const OptionalTensor& bias,
                 IntArrayRef stride, IntArrayRef padding) {
  return slow(input, weight, bias, plain(weight, stride, padding));
}

Tensor slow_conv_dilated(const Tensor& input, const Tensor& weight, IntArrayRef,
                         const OptionalTensor& bias, IntArrayRef stride, IntArrayRef padding,
                         IntArrayRef dilation) {
  return slow(input, weight, bias, plain(weight, stride, padding, dilation));
}

Tensor conv_depthwise(const Tensor& input, const Tensor& weight, IntArrayRef,
                      const OptionalTensor& bias, IntArrayRef stride, IntArrayRef padding,
                      IntArrayRef dilation) {
  return slow(input, weight, bias, plain(weight, stride, padding, dilation, input.size(1)));
}

Tensor slow_conv_transpose(const Tensor& input, const Tensor& weight, IntArrayRef,
                           const OptionalTensor& bias, IntArrayRef stride, IntArrayRef padding,
                           IntArrayRef output_padding, IntArrayRef dilation) {
  // The kernel would leave its argument with another shape.
  TORCH_CHECK(weight.dim() != 4 || input.dim() == 4,
              "slow_conv_transpose2d: an input without batch cannot be traced");
  return slow(input, weight, bias,
              parameters(weight, stride, padding, dilation, true, output_padding, 1));
}

TensorTriple slow_conv2d_backward(const Tensor& grad, const Tensor& input, const Tensor& weight,
                                  IntArrayRef, IntArrayRef, IntArrayRef, std::array<bool, 3> mask) {
  TensorTriple result;
  auto& [grad_input, grad_weight, grad_bias] = result;
  auto format = slow_format(input, weight);
  if (mask[0]) grad_input = make(input.sizes(), input.scalar_type(), format);
  if (mask[1]) {
    grad_weight = make(weight.sizes(), weight.scalar_type(), weight.suggest_memory_format());
    TORCH_CHECK(grad_weight.is_contiguous(format), "slow_conv2d: grad_weight must be contiguous");
  }
  if (mask[2]) grad_bias = make({grad.size(1)}, grad.scalar_type());
  return result;
}

Tensor fast(const Tensor& input, const Tensor& weight, const OptionalTensor& bias,
            const Parameters& p) {
  check_shapes(input, weight, bias, p);
  bool enabled = input.scalar_type() != at::kDouble && weight.scalar_type() != at::kDouble;
  return make(output_sizes(input, weight, p), input.scalar_type(),
              enabled ? format_of_either(input, weight) : MemoryFormat::Contiguous);
}

Tensor mkldnn_convolution(const Tensor& input, const Tensor& weight, const OptionalTensor& bias,
                          IntArrayRef padding, IntArrayRef stride, IntArrayRef dilation,
                          int64_t groups) {
  return fast(input, weight, bias, plain(weight, stride, padding, dilation, groups));
}

Tensor cudnn_convolution(const Tensor& input, const Tensor& weight, IntArrayRef padding,
                         IntArrayRef stride, IntArrayRef dilation, int64_t groups, bool, bool,
                         bool) {
  return fast(input, weight, std::nullopt, plain(weight, stride, padding, dilation, groups));
}

Tensor cudnn_convolution_transpose(const Tensor& input, const Tensor& weight, IntArrayRef padding,
                                   IntArrayRef output_padding, IntArrayRef stride,
                                   IntArrayRef dilation, int64_t groups, bool, bool, bool) {
  return fast(input, weight, std::nullopt,
              parameters(weight, stride, padding, dilation, true, output_padding, groups));
}

Tensor cudnn_convolution_relu(const Tensor& input, const Tensor& weight, const OptionalTensor& bias,
                              IntArrayRef stride, IntArrayRef padding, IntArrayRef dilation,
                              int64_t groups) {
  return fast(input, weight, bias, plain(weight, stride, padding, dilation, groups));
}

Tensor cudnn_convolution_add_relu(const Tensor& input, const Tensor& weight, const Tensor&,
                                  const std::optional<at::Scalar>&, const OptionalTensor& bias,
                                  IntArrayRef stride, IntArrayRef padding, IntArrayRef dilation,
                                  int64_t groups) {
  return fast(input, weight, bias, plain(weight, stride, padding, dilation, groups));
}

Layouts convolution_backward_layout(const LayoutCall& call) {
  Layouts layouts(call.results.size());
  for (size_t i = 0; i < layouts.size(); ++i) {
    if (!call.results[i].defined()) continue;
    layouts[i] = i < 2 ? in_order(call, call.sizes(1 + i), i) : Layout::contiguous(call.list(3));
  }
  return layouts;
}

}  // namespace

void add_convolution_rules(ShapeRules& rules) {
  rules.add("convolution", TORCH_FN(convolution_rule));
  rules.add("_convolution", TORCH_FN(convolution_with_settings));
  rules.add("convolution_backward", TORCH_FN(convolution_backward));
  rules.add("_slow_conv2d_forward", TORCH_FN(slow_conv));
  rules.add("_slow_conv2d_backward.output_mask", TORCH_FN(slow_conv2d_backward));
  rules.add("slow_conv3d_forward", TORCH_FN(slow_conv));
  rules.add("slow_conv_dilated2d", TORCH_FN(slow_conv_dilated));
  rules.add("slow_conv_dilated3d", TORCH_FN(slow_conv_dilated));
  rules.add("slow_conv_transpose2d", TORCH_FN(slow_conv_transpose));
  rules.add("slow_conv_transpose3d", TORCH_FN(slow_conv_transpose));
  rules.add("_conv_depthwise2d", TORCH_FN(conv_depthwise));
  rules.add("conv_depthwise3d", TORCH_FN(conv_depthwise));
  rules.add("mkldnn_convolution", TORCH_FN(mkldnn_convolution));
  rules.add("cudnn_convolution", TORCH_FN(cudnn_convolution));
  rules.add("cudnn_convolution_transpose", TORCH_FN(cudnn_convolution_transpose));
  rules.add("cudnn_convolution_relu", TORCH_FN(cudnn_convolution_relu));
  rules.add("cudnn_convolution_add_relu", TORCH_FN(cudnn_convolution_add_relu));
  rules.add_layout("convolution_backward", convolution_backward_layout);
}

}  // namespace ahead::ops::shapes
