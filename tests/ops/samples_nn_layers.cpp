#include "ops/families.h"
#include "ops/images.h"

namespace ahead::samples::nn_layers_samples {
namespace {

using at::Tensor;

void add_activations(SampleTable& table) {
  const auto inputs = unary_inputs(floating);
  table.op("aten.hardtanh").over(inputs, [](auto& x) { return at::hardtanh(x, -0.5, 0.7); });
  table.op("aten.hardswish").over(inputs, [](auto& x) { return at::hardswish(x); });
  table.op("aten.log_sigmoid").over(inputs, [](auto& x) { return at::log_sigmoid(x); });
  table.op("aten.relu").over(inputs, [](auto& x) { return at::relu(x); });
  table.op("aten.gelu").over(inputs, [](auto& x) { return at::gelu(x); });
  table.op("aten.glu")
      .sample("plain", {f32(3, 4)}, [](auto& x) { return at::glu(x, 1); })
      .sample("first", {f64(4, 3)}, [](auto& x) { return at::glu(x, 0); })
      .sample("transposed", {f32(3, 4).transposed()}, [](auto& x) { return at::glu(x, 1); });
  table.op("aten.prelu")
      .sample("one", {f32(3, 4), f32(1)}, [](auto& x, auto& w) { return at::prelu(x, w); })
      .sample("channels", {f32(2, 3, 4), f32(3)}, [](auto& x, auto& w) { return at::prelu(x, w); })
      .sample("transposed", {f64(3, 4).transposed(), f64(4)},
              [](auto& x, auto& w) { return at::prelu(x, w); });
}

void add_pooling(SampleTable& table) {
  const auto images = image_inputs(floating, {6, 5}, Unbatched::Yes);
  table.op("aten.max_pool2d").over(images, [](auto& x) { return at::max_pool2d(x, 2, 2, 1); });
  table.op("aten.avg_pool2d").over(images, [](auto& x) { return at::avg_pool2d(x, 2, 2, 1); });
  table.op("aten.adaptive_avg_pool2d").over(images, [](auto& x) {
    return at::adaptive_avg_pool2d(x, {3, 2});
  });
  table.op("aten.adaptive_max_pool2d").over(images, [](auto& x) {
    return std::get<0>(at::adaptive_max_pool2d(x, {3, 2}));
  });
  const auto volumes = image_inputs(floating, {4, 4, 5}, Unbatched::No);
  table.op("aten.max_pool3d").over(volumes, [](auto& x) { return at::max_pool3d(x, 2); });
  table.op("aten.adaptive_avg_pool3d").over(volumes, [](auto& x) {
    return at::adaptive_avg_pool3d(x, {2, 2, 3});
  });
}

void add_unpooling(SampleTable& table) {
  // Windows that do not overlap have their maxima in different places.
  const auto images = image_inputs(full_floating, {4, 6}, Unbatched::Yes);
  table.op("aten.max_unpool2d").over(images, [](auto& x) {
    const auto [values, places] = at::max_pool2d_with_indices(x, {2, 2});
    return at::max_unpool2d(values, places, {4, 6});
  });
  const auto unpool3d = [](auto& x) {
    const auto [values, places] = at::max_pool3d_with_indices(x, {2, 2, 2});
    return at::max_unpool3d(values, places, {4, 4, 6}, {2, 2, 2}, {0, 0, 0});
  };
  table.op("aten.max_unpool3d")
      .over(image_inputs(full_floating, {4, 4, 6}, Unbatched::No), unpool3d)
      .sample("unbatched", {f32(3, 4, 4, 6)}, unpool3d);
}

/// The windows lie where random numbers, one for each image, channel and dimension, say.
std::vector<Inputs> with_fractions(const std::vector<Inputs>& images, int64_t dims) {
  std::vector<Inputs> sets = images;
  for (Inputs& inputs : sets) {
    const std::vector<int64_t>& sizes = inputs[0].sizes();
    const bool batched = static_cast<int64_t>(sizes.size()) == dims + 2;
    inputs.push_back(tensor(inputs[0].dtype(), batched ? sizes[0] : 1, sizes[batched ? 1 : 0], dims)
                         .range(0, 1)
                         .no_grad());
  }
  return sets;
}

void add_fractional_pooling(SampleTable& table) {
  const auto images = image_inputs(full_floating, {6, 5}, Unbatched::Yes);
  table.op("aten.fractional_max_pool2d")
      .over(with_fractions(images, 2), [](auto& x, auto& fractions) {
        return at::fractional_max_pool2d(x, {2, 2}, {3, 3}, fractions);
      });
  const auto volumes = image_inputs(full_floating, {6, 5, 4}, Unbatched::Yes);
  table.op("aten.fractional_max_pool3d")
      .over(with_fractions(volumes, 3), [](auto& x, auto& fractions) {
        return at::fractional_max_pool3d(x, {2, 2, 2}, {3, 3, 2}, fractions);
      });
}

void add_attention(SampleTable& table) {
  const auto attend = [](auto& q, auto& k, auto& v) {
    return at::scaled_dot_product_attention(q, k, v);
  };
  const auto causal = [](auto& q, auto& k, auto& v) {
    return at::scaled_dot_product_attention(q, k, v, {}, 0.0, true);
  };
  table.op("aten._safe_softmax")
      .over(unary_inputs(floating), [](auto& x) { return at::_safe_softmax(x, 0); })
      .over(
          {{f32(3, 4)}, {f32(3, 4).transposed()}, {f32(2, 3, 2, 2).channels_last()}},
          [](auto& x) {
            const double hidden = -std::numeric_limits<double>::infinity();
            return at::_safe_softmax(x.masked_fill(x.sign().cumsum(0).gt(0), hidden), 1);
          },
          "hidden")
      .over(
          {{f32(3, 4)}, {bf16(3, 4).transposed()}},
          [](auto& x) { return at::_safe_softmax(x, 1, at::kDouble); }, "in double");
  const auto heads = [](int64_t time) { return f32(2, 3, time, 8); };
  table.op("aten.scaled_dot_product_attention")
      .sample("plain", {heads(5), heads(5), heads(5)}, attend)
      .sample("causal", {heads(5), heads(5), heads(5)}, causal)
      .sample("other length", {heads(5), heads(7), heads(7)}, attend)
      .sample("permuted", {heads(5).permuted(), heads(5).permuted(), heads(5).permuted()}, causal)
      .sample("double", {f64(2, 3, 5, 8), f64(2, 3, 5, 8), f64(2, 3, 5, 8)}, causal)
      .sample("bf16", {bf16(2, 3, 5, 8), bf16(2, 3, 5, 8), bf16(2, 3, 5, 8)}, attend)
      .sample("mask", {heads(5), heads(5), heads(5), f32(5, 5).no_grad()},
              [](auto& q, auto& k, auto& v, auto& mask) {
                return at::scaled_dot_product_attention(q, k, v, mask);
              });
}

}  // namespace

void add(SampleTable& table) {
  add_activations(table);
  add_pooling(table);
  add_unpooling(table);
  add_fractional_pooling(table);
  add_attention(table);
}

}  // namespace ahead::samples::nn_layers_samples
