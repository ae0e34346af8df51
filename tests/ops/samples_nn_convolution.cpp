#include "ops/families.h"

namespace ahead::samples::nn_convolution_samples {
namespace {

void add_layers(SampleTable& table) {
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

/// A batch of images, a weight and a bias, in the layouts and types that kernels tell apart.
std::vector<Inputs> images_and_weights(const Input& image, const Input& weight, const Input& bias) {
  return {{image, weight, bias},
          {image.channels_last(), weight, bias},
          {image, weight.channels_last(), bias},
          {image.channels_last(), weight.channels_last(), bias},
          {image.permuted(), weight.permuted(), bias},
          {image.strided(), weight.expanded(), bias.strided()}};
}

std::vector<Inputs> in_two_dimensions(int64_t in, int64_t out) {
  std::vector<Inputs> sets = images_and_weights(f32(2, 3, 6, 5), f32(out, in, 3, 2), f32(4));
  sets.push_back({f64(2, 3, 6, 5), f64(out, in, 3, 2), f64(4)});
  sets.push_back({bf16(2, 3, 6, 5), bf16(out, in, 3, 2), bf16(4)});
  sets.push_back({f32(1, 3, 6, 5), f32(out, in, 1, 1), f32(4)});
  return sets;
}

std::vector<Inputs> in_three_dimensions(int64_t in, int64_t out) {
  std::vector<Inputs> sets = images_and_weights(f32(2, 3, 4, 5, 4), f32(out, in, 2, 3, 2), f32(4));
  sets.push_back({f64(2, 3, 4, 5, 4), f64(out, in, 2, 3, 2), f64(4)});
  return sets;
}

at::IntArrayRef window(const at::Tensor& weight) {
  return weight.sizes().slice(2);
}

/// The kernels that `convolution` chooses from, which are operators of their own.
void add_kernels(SampleTable& table) {
  const auto thnn_conv2d = [](auto& x, auto& w, auto& b) {
    return at::thnn_conv2d(x, w, window(w), b, {1, 1}, {1, 1});
  };
  const Input image = f32(2, 3, 6, 5), weight = f32(4, 3, 3, 2);
  table.op("aten.thnn_conv2d")
      .over({{image, weight, f32(4)},
             {image.channels_last(), weight.channels_last(), f32(4)},
             {image.strided(), weight, f32(4).strided()},
             {f64(2, 3, 6, 5), f64(4, 3, 3, 2), f64(4)},
             {bf16(2, 3, 6, 5), bf16(4, 3, 3, 2), bf16(4)},
             {image, weight.channels_last(), f32(4)}},
            thnn_conv2d)
      .not_differentiable()
      .over({{image.channels_last(), weight, f32(4)}}, thnn_conv2d);
  table.op("aten.slow_conv3d").over(in_three_dimensions(3, 4), [](auto& x, auto& w, auto& b) {
    return at::slow_conv3d(x, w, window(w), b, {1, 1, 1}, {1, 1, 1});
  });
  const auto dilated2d = [](auto& x, auto& w, auto& b) {
    return at::slow_conv_dilated2d(x, w, window(w), b, {1, 1}, {1, 1}, {2, 2});
  };
  table.op("aten.slow_conv_dilated2d")
      .over(in_two_dimensions(3, 4), dilated2d)
      .not_differentiable()
      .over({{f32(3, 6, 5), f32(4, 3, 3, 2), f32(4)}}, dilated2d, "unbatched");
  const auto dilated3d = [](auto& x, auto& w, auto& b) {
    return at::slow_conv_dilated3d(x, w, window(w), b, {1, 1, 1}, {1, 1, 1}, {2, 2, 2});
  };
  table.op("aten.slow_conv_dilated3d")
      .over(in_three_dimensions(3, 4), dilated3d)
      .not_differentiable()
      .over({{f32(3, 4, 5, 4), f32(4, 3, 2, 3, 2), f32(4)}}, dilated3d, "unbatched");
  table.op("aten.slow_conv_transpose2d")
      .over(in_two_dimensions(4, 3), [](auto& x, auto& w, auto& b) {
        return at::slow_conv_transpose2d(x, w, window(w), b, {2, 2}, {1, 1}, {1, 1}, {1, 1});
      });
  const auto transpose3d = [](auto& x, auto& w, auto& b) {
    return at::slow_conv_transpose3d(x, w, window(w), b, {2, 2, 2}, {1, 1, 1}, {1, 1, 1},
                                     {1, 1, 1});
  };
  table.op("aten.slow_conv_transpose3d")
      .over(in_three_dimensions(4, 3), transpose3d)
      .not_differentiable()
      .over({{f32(3, 4, 5, 4), f32(3, 4, 2, 3, 2), f32(4)}}, transpose3d, "unbatched");
  table.op("aten.mkldnn_convolution")
      .over(images_and_weights(f32(2, 3, 6, 5), f32(4, 3, 3, 2), f32(4)),
            [](auto& x, auto& w, auto& b) {
              return at::mkldnn_convolution(x, w, b, {1, 1}, {1, 1}, {1, 1}, 1);
            });
}

void add_general(SampleTable& table) {
  const auto plain = [](auto& x, auto& w, auto& b) {
    return at::_convolution(x, w, b, {1, 1}, {1, 1}, {1, 1}, false, {0, 0}, 1, false, false, true,
                            true);
  };
  table.op("aten._convolution").over(in_two_dimensions(3, 4), plain);
  const auto transposed = [](auto& x, auto& w, auto& b) {
    return at::convolution(x, w, b, {2, 1}, {1, 0}, {1, 1}, true, {1, 0}, 1);
  };
  table.op("aten.convolution").over(in_two_dimensions(4, 3), transposed, "transposed");
}

}  // namespace

void add(SampleTable& table) {
  add_layers(table);
  add_kernels(table);
  add_general(table);
}

}  // namespace ahead::samples::nn_convolution_samples
