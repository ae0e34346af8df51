#include "ops/families.h"

// Operators whose result, or the size of whose result, depends on values: eager runs them, the
// tracer must say clearly that it cannot.
namespace ahead::samples::reading_samples {

void add(SampleTable& table) {
  const std::vector<Inputs> any = {
      {f32(2, 3)}, {i64(2, 3)}, {b8(4)}, {f64(2, 3).transposed()}, {c64(3)}};
  const std::vector<Inputs> ordered = {{f32(6)}, {i64(2, 3)}, {f64(2, 3).transposed()}};
  const std::vector<Inputs> masked = {
      {f32(2, 3), b8(2, 3)}, {f32(2, 3).transposed(), b8(3)}, {i64(3), b8(3)}};
  table.op("aten.nonzero").reads_values().over(any, [](auto& x) { return at::nonzero(x); });
  table.op("aten.nonzero_numpy").reads_values().over(any, [](auto& x) {
    return at::nonzero_numpy(x);
  });
  table.op("aten.argwhere").reads_values().over(any, [](auto& x) { return at::argwhere(x); });
  table.op("aten.where")
      .reads_values()
      .over(
          any, [](auto& x) { return at::where(x); }, "condition alone");
  table.op("aten.masked_select")
      .reads_values()
      .gradient_rounds(
          "eager writes into zeros that lie as the operand does; a graph's masked_scatter is "
          "contiguous")
      .over(masked, [](auto& x, auto& m) { return at::masked_select(x, m); });
  table.op("aten.index")
      .reads_values()
      .over(
          {masked[0], masked[2]}, [](auto& x, auto& m) { return x.index({m}); }, "mask");
  table.op("aten._unique2").reads_values().not_differentiable().over(ordered, [](auto& x) {
    return at::_unique2(x, true, true, true);
  });
  table.op("aten.unique_dim").reads_values().not_differentiable().over(ordered, [](auto& x) {
    return at::unique_dim(x, 0);
  });
  table.op("aten.unique_consecutive")
      .reads_values()
      .not_differentiable()
      .over(ordered, [](auto& x) { return at::unique_consecutive(x); });
  table.op("aten.bincount")
      .reads_values()
      .over({{index(4, 5)}, {i32(5).range(0, 4)}, {index(4, 5).strided()}},
            [](auto& x) { return at::bincount(x); });
  table.op("aten.repeat_interleave")
      .reads_values()
      .over(
          {{f32(3), index(3, 3)}, {f32(3, 2).transposed(), index(3, 3)}},
          [](auto& x, auto& n) { return at::repeat_interleave(x, n, 0); }, "counts");
  table.op("aten.item").reads_values().over(any, [](auto& x) {
    return x.flatten()[0].item().isComplex() ? x.clone() : x.contiguous().clone();
  });
  table.op("aten.is_nonzero").reads_values().over(any, [](auto& x) {
    return at::is_nonzero(x.flatten()[0]) ? x : x.clone();
  });
  table.op("aten.equal").reads_values().over(any, [](auto& x) {
    return at::equal(x, x.clone()) ? x.clone() : x;
  });
  table.op("aten.allclose")
      .reads_values()
      .over({{f32(3)}, {f64(2, 3).transposed()}, {i64(3)}},
            [](auto& x) { return at::allclose(x, x.clone()) ? x.clone() : x; });
}

}  // namespace ahead::samples::reading_samples
