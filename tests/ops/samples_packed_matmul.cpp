#include "ops/families.h"

// Products with weights in fewer bits than the type they are computed in.
namespace ahead::samples::packed_matmul_samples {
namespace {

void add_integers(SampleTable& table) {
  const auto weight = tensor(at::kChar, 16, 32).range(-100, 100);
  const auto product = [](auto& x, auto& w, auto& scales) {
    return at::_weight_int8pack_mm(x, w, scales);
  };
  table.op("aten._weight_int8pack_mm")
      .not_differentiable()
      .sample("bf16", {bf16(3, 32), weight, bf16(16)}, product)
      .sample("f16", {f16(3, 32), weight, f16(16)}, product)
      .sample("f32", {f32(3, 32), weight, f32(16)}, product);
  const auto packed = [](auto& w) { return at::_convert_weight_to_int4pack_for_cpu(w, 2); };
  table.op("aten._convert_weight_to_int4pack_for_cpu")
      .over({{i32(16, 64).range(0, 16)}, {i32(48, 32).range(0, 16)}, {i32(64, 32).range(0, 16)}},
            packed);
  const auto packed_product = [packed](auto& x, auto& w, auto& scales_and_zeros) {
    return at::_weight_int4pack_mm_for_cpu(x, packed(w), 32, scales_and_zeros);
  };
  const auto numbers = i32(16, 64).range(0, 16);
  table.op("aten._weight_int4pack_mm_for_cpu")
      .not_differentiable()
      .sample("bf16", {bf16(3, 64), numbers, bf16(2, 16, 2)}, packed_product)
      .sample("f16", {f16(3, 64), numbers, f16(2, 16, 2)}, packed_product)
      .sample("f32", {f32(3, 64), numbers, f32(2, 16, 2)}, packed_product);
}

void add_floats(SampleTable& table) {
  const auto product = [](auto& x, auto& y, auto& a, auto& b) {
    return at::_scaled_mm(x.to(at::kFloat8_e4m3fn), y.to(at::kFloat8_e4m3fn), a, b, {}, {},
                          at::kFloat);
  };
  const auto scale = f32().positive().no_grad();
  table.op("aten._scaled_mm")
      .not_differentiable()
      .sample("column first", {f32(16, 32), f32(32, 16).transposed(), scale, scale}, product)
      .sample("wide", {f32(16, 64), f32(64, 48).transposed(), scale, scale}, product)
      .sample("bf16", {f32(16, 32), f32(32, 16).transposed(), scale, scale},
              [](auto& x, auto& y, auto& a, auto& b) {
                return at::_scaled_mm(x.to(at::kFloat8_e4m3fn), y.to(at::kFloat8_e4m3fn), a, b, {},
                                      {}, at::kBFloat16);
              });
}

}  // namespace

void add(SampleTable& table) {
  add_integers(table);
  add_floats(table);
}

}  // namespace ahead::samples::packed_matmul_samples
