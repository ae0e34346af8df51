#include "ops/families.h"

namespace ahead::samples {
namespace {

std::vector<Inputs> tensors() {
  return {{f32(3, 4)},
          {f32(4, 3).transposed()},
          {f32(3, 4).strided()},
          {f32(2, 3, 2, 2).channels_last()}};
}

/// Scale and zero point: one for each channel, or one for all.
std::vector<Inputs> with_parameters(bool per_channel, at::ScalarType zero_point) {
  std::vector<Inputs> sets;
  for (const Input& x : {f32(2, 3), f32(2, 3).transposed(), f32(2, 3, 2, 2).channels_last()}) {
    const int64_t channels = per_channel ? 3 : 1;
    sets.push_back({x, f32(channels).filled(0.1), tensor(zero_point, channels).filled(0)});
  }
  return sets;
}

}  // namespace

void add_fake_quantize_samples(SampleTable& table) {
  table.op("aten.fake_quantize_per_tensor_affine")
      .over(tensors(),
            [](auto& x) { return at::fake_quantize_per_tensor_affine(x, 0.1, 0, -128, 127); })
      .over(
          with_parameters(/*per_channel=*/false, at::kInt),
          [](auto& x, auto& scale, auto& zero) {
            return at::fake_quantize_per_tensor_affine(x, scale.detach(), zero, -128, 127);
          },
          "tensors");
  table.op("aten.fake_quantize_per_channel_affine")
      .over(with_parameters(/*per_channel=*/true, at::kInt), [](auto& x, auto& scale, auto& zero) {
        return at::fake_quantize_per_channel_affine(x, scale.detach(), zero, 1, -128, 127);
      });
  table.op("aten._fake_quantize_learnable_per_tensor_affine")
      .over(with_parameters(/*per_channel=*/false, at::kFloat),
            [](auto& x, auto& scale, auto& zero) {
              return at::_fake_quantize_learnable_per_tensor_affine(x, scale, zero, -128, 127);
            });
  table.op("aten._fake_quantize_learnable_per_channel_affine")
      .over(with_parameters(/*per_channel=*/true, at::kFloat),
            [](auto& x, auto& scale, auto& zero) {
              return at::_fake_quantize_learnable_per_channel_affine(x, scale, zero, 1, -128, 127);
            });
}

}  // namespace ahead::samples
