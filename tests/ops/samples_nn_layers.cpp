#include "ops/families.h"
#include "ops/images.h"

namespace ahead::samples {
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

void add_convolution(SampleTable& table) {
  const auto conv2d = [](auto& x, auto& w, auto& b) { return at::conv2d(x, w, b, 1, 1); };
  table.op("aten.conv2d")
      .sample("plain", {f32(2, 3, 5, 4), f32(4, 3, 3, 3), f32(4)}, conv2d)
      .sample("channels last", {f32(2, 3, 5, 4).channels_last(), f32(4, 3, 3, 3), f32(4)}, conv2d)
      .sample("weight channels last", {f32(2, 3, 5, 4), f32(4, 3, 3, 3).channels_last(), f32(4)},
              conv2d)
      .sample("permuted", {f32(2, 3, 5, 4).permuted(), f32(4, 3, 3, 3), f32(4)}, conv2d)
      .sample("double", {f64(2, 3, 5, 4), f64(4, 3, 3, 3), f64(4)}, conv2d)
      .sample("unbatched", {f32(3, 5, 4), f32(4, 3, 3, 3), f32(4)}, conv2d)
      .sample("no bias, stride, dilation", {f32(2, 3, 7, 8), f32(4, 3, 2, 3)},
              [](auto& x, auto& w) {
                return at::conv2d(x, w, {}, {2, 1}, {1, 0}, {1, 2});
              })
      .sample("groups", {f32(2, 4, 5, 5), f32(6, 2, 3, 3)},
              [](auto& x, auto& w) {
                return at::conv2d(x, w, {}, at::IntArrayRef({1, 1}), at::IntArrayRef({0, 0}),
                                  at::IntArrayRef({1, 1}), 2);
              })
      .sample("same padding", {f32(2, 3, 5, 4), f32(4, 3, 3, 3)},
              [](auto& x, auto& w) { return at::conv2d(x, w, {}, 1, "same"); });
  table.op("aten.conv1d")
      .sample("plain", {f32(2, 3, 7), f32(4, 3, 3), f32(4)},
              [](auto& x, auto& w, auto& b) { return at::conv1d(x, w, b); })
      .sample("stride", {f64(2, 3, 7), f64(4, 3, 3)},
              [](auto& x, auto& w) { return at::conv1d(x, w, {}, 2, 1); })
      .sample("transposed", {f32(2, 7, 3).permuted(), f32(4, 2, 3)}, [](auto& x, auto& w) {
        return at::conv1d(x.reshape({3, 2, 7}), w);
      });
  table.op("aten.conv3d")
      .sample("plain", {f32(1, 2, 4, 4, 4), f32(3, 2, 2, 2, 2), f32(3)},
              [](auto& x, auto& w, auto& b) { return at::conv3d(x, w, b); })
      .sample("channels last", {f32(1, 2, 4, 4, 4).channels_last(), f32(3, 2, 2, 2, 2)},
              [](auto& x, auto& w) { return at::conv3d(x, w); })
      .sample("padding", {f64(1, 2, 4, 4, 4), f64(3, 2, 3, 3, 3)},
              [](auto& x, auto& w) { return at::conv3d(x, w, {}, 1, 1); });
  table.op("aten.conv_transpose2d")
      .sample("plain", {f32(2, 3, 4, 5), f32(3, 4, 3, 3), f32(4)},
              [](auto& x, auto& w, auto& b) { return at::conv_transpose2d(x, w, b); })
      .sample("stride", {f32(2, 3, 4, 5), f32(3, 4, 3, 3)},
              [](auto& x, auto& w) { return at::conv_transpose2d(x, w, {}, 2, 1, 1); })
      .sample("groups", {f32(2, 4, 4, 5), f32(4, 2, 3, 3)},
              [](auto& x, auto& w) { return at::conv_transpose2d(x, w, {}, 1, 0, 0, 2); });
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

void add_normalisation(SampleTable& table) {
  table.op("aten.layer_norm")
      .sample("affine", {f32(2, 3, 4), f32(4), f32(4)},
              [](auto& x, auto& w, auto& b) { return at::layer_norm(x, {4}, w, b); })
      .sample("two dimensions", {f64(2, 3, 4), f64(3, 4), f64(3, 4)},
              [](auto& x, auto& w, auto& b) {
                return at::layer_norm(x, {3, 4}, w, b);
              })
      .sample("plain", {f32(2, 3)}, [](auto& x) { return at::layer_norm(x, {3}); })
      .sample("transposed", {f32(3, 4).transposed()},
              [](auto& x) { return at::layer_norm(x, {x.size(1)}); })
      .sample("bf16", {bf16(2, 4), bf16(4), bf16(4)},
              [](auto& x, auto& w, auto& b) { return at::layer_norm(x, {4}, w, b); });
  const auto training = [](auto& x, auto& w, auto& b, auto& m, auto& v) {
    Tensor mean = m * 1, var = v * 1;  // statistics that nobody outside sees
    return std::vector<Tensor>{at::batch_norm(x, w, b, mean, var, true, 0.1, 1e-5, false), mean,
                               var};
  };
  const auto evaluation = [](auto& x, auto& w, auto& b, auto& m, auto& v) {
    return at::batch_norm(x, w, b, m, v, /*training=*/false, 0.1, 1e-5, false);
  };
  const auto batch = [](Input x) {
    return Inputs{x, f32(3), f32(3), f32(3).no_grad(), f32(3).positive().no_grad()};
  };
  table.op("aten.batch_norm")
      .sample("training", batch(f32(2, 3, 4, 4)), training)
      .sample("training, channels last", batch(f32(2, 3, 4, 4).channels_last()), training)
      .sample("training, matrix", batch(f32(5, 3)), training)
      .sample("evaluation", batch(f32(2, 3, 4, 4)), evaluation)
      .sample("evaluation, channels last", batch(f32(2, 3, 4, 4).channels_last()), evaluation)
      .sample("without statistics", {f64(4, 3, 2)},
              [](auto& x) { return at::batch_norm(x, {}, {}, {}, {}, true, 0.1, 1e-5, false); });
  table.op("aten.group_norm")
      .sample("affine", {f32(2, 4, 3), f32(4), f32(4)},
              [](auto& x, auto& w, auto& b) { return at::group_norm(x, 2, w, b); })
      .sample("plain", {f64(2, 4, 3, 3)}, [](auto& x) { return at::group_norm(x, 4); })
      .sample("channels last", {f32(2, 4, 3, 3).channels_last(), f32(4), f32(4)},
              [](auto& x, auto& w, auto& b) { return at::group_norm(x, 2, w, b); });
  table.op("aten.instance_norm")
      .sample("plain", {f32(2, 3, 4)},
              [](auto& x) { return at::instance_norm(x, {}, {}, {}, {}, true, 0.1, 1e-5, false); })
      .sample("affine", {f32(2, 3, 4), f32(3), f32(3)},
              [](auto& x, auto& w, auto& b) {
                return at::instance_norm(x, w, b, {}, {}, true, 0.1, 1e-5, false);
              })
      .sample("images", {f64(2, 3, 4, 2)},
              [](auto& x) { return at::instance_norm(x, {}, {}, {}, {}, true, 0.1, 1e-5, false); });
  table.op("aten.rms_norm")
      .sample("plain", {f32(2, 4)}, [](auto& x) { return at::rms_norm(x, {4}); })
      .sample("affine", {f32(2, 3, 4), f32(4)},
              [](auto& x, auto& w) { return at::rms_norm(x, {4}, w, 1e-6); })
      .sample("double", {f64(2, 4), f64(4)},
              [](auto& x, auto& w) { return at::rms_norm(x, {4}, w, 1e-6); });
}

void add_embedding(SampleTable& table) {
  table.op("aten.embedding")
      .sample("vector", {f32(7, 4), index(7, 5)},
              [](auto& w, auto& i) { return at::embedding(w, i); })
      .sample("matrix, padding", {f32(7, 4), index(7, 2, 3)},
              [](auto& w, auto& i) { return at::embedding(w, i, 1); })
      .sample("scalar", {f64(7, 4), index(7)}, [](auto& w, auto& i) { return at::embedding(w, i); })
      .sample("transposed", {f32(7, 4).transposed(), index(3, 4)},
              [](auto& w, auto& i) { return at::embedding(w, i, -1, true); });
}

void add_attention(SampleTable& table) {
  const auto attend = [](auto& q, auto& k, auto& v) {
    return at::scaled_dot_product_attention(q, k, v);
  };
  const auto causal = [](auto& q, auto& k, auto& v) {
    return at::scaled_dot_product_attention(q, k, v, {}, 0.0, true);
  };
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

void add_nn_layers_samples(SampleTable& table) {
  add_activations(table);
  add_convolution(table);
  add_pooling(table);
  add_normalisation(table);
  add_embedding(table);
  add_attention(table);
}

}  // namespace ahead::samples
