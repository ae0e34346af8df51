#include "ops/families.h"

namespace ahead::samples::fake_quantize_samples {
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

/// What watches a tensor's range and quantises it: switches, running range, scale, zero point.
Inputs with_observer(const Input& x) {
  return {x,
          i64(1).filled(1),
          i64(1).filled(1),
          f32(1).filled(-1).no_grad(),
          f32(1).filled(1).no_grad(),
          f32(1).filled(0.1).no_grad(),
          i32(1).filled(0)};
}

void add_observer(SampleTable& table) {
  table.op("aten.fused_moving_avg_obs_fake_quant")
      .over(
          {with_observer(f32(3, 4)), with_observer(f32(4, 3).transposed()),
           with_observer(f32(2, 3, 2, 2).channels_last())},
          [](auto& x, auto& watch, auto& quantise, auto& low, auto& high, auto& scale, auto& zero) {
            at::Tensor new_low = low.clone(), new_high = high.clone(), new_scale = scale.clone(),
                       new_zero = zero.clone();
            const at::Tensor result = at::fused_moving_avg_obs_fake_quant(
                x, watch, quantise, new_low, new_high, new_scale, new_zero, 0.1, -128, 127, 0);
            return Tensors{result, new_low, new_high, new_scale, new_zero};
          });
}

}  // namespace

void add(SampleTable& table) {
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
  add_observer(table);
}

}  // namespace ahead::samples::fake_quantize_samples
