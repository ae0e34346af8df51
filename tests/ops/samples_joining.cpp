#include "ops/families.h"

// Joining, repeating, padding and rearranging.
namespace ahead::samples::joining_samples {
namespace {

std::vector<Inputs> matrices() {
  return {{f32(2, 3)},
          {f32(2, 3).transposed()},
          {f32(2, 3).strided()},
          {f32(2, 3).expanded()},
          {bf16(2, 3)},
          {i64(2, 3)},
          {b8(2, 3)},
          {c64(2, 3)}};
}

void add_concatenations(SampleTable& table) {
  std::vector<Inputs> pairs = {{f32(2, 3).transposed(), f32(2, 3)},
                               {f32(2, 3).transposed(), f32(2, 3).transposed()},
                               {f32(2, 3).strided(), f32(2, 3).expanded()},
                               {f32(2, 3), f64(2, 3)},
                               {i64(2, 3), f16(2, 3)},
                               {f32(0, 3), f32(0, 3)}};
  for (at::ScalarType dtype : everything.list())
    pairs.push_back({tensor(dtype, 2, 3), tensor(dtype, 2, 3)});
  table.op("aten.cat")
      .over(
          pairs,
          [](auto& x, auto& y) {
            return at::cat({x, y});
          },
          "0")
      .over(
          pairs,
          [](auto& x, auto& y) {
            return at::cat({x, y}, -1);
          },
          "-1")
      .sample("legacy empty", {f32(0), f32(2, 3)},
              [](auto& x, auto& y) {
                return at::cat({x, y}, 1);
              })
      .sample("one", {f32(2, 3)}, [](auto& x) { return at::cat({x}); })
      .sample("with itself", {f32(2, 3)},
              [](auto& x) {
                return at::cat({x, x}, 1);
              })
      .sample("channels last", {f32(2, 3, 2, 2).channels_last(), f32(2, 1, 2, 2).channels_last()},
              [](auto& x, auto& y) {
                return at::cat({x, y}, 1);
              })
      .sample("channels last and contiguous", {f32(2, 3, 2, 2).channels_last(), f32(2, 1, 2, 2)},
              [](auto& x, auto& y) {
                return at::cat({x, y}, 1);
              })
      .sample("three", {f32(1, 3), f32(2, 3), f32(3, 3)}, [](auto& x, auto& y, auto& z) {
        return at::cat({x, y, z});
      });
  table.op("aten.concat").over(pairs, [](auto& x, auto& y) { return at::concat({x, y}, 1); });
  table.op("aten.concatenate").over(pairs, [](auto& x, auto& y) {
    return at::concatenate({x, y}, 0);
  });
  table.op("aten.stack")
      .over(
          pairs,
          [](auto& x, auto& y) {
            return at::stack({x, y});
          },
          "0")
      .over(
          pairs,
          [](auto& x, auto& y) {
            return at::stack({x, y}, -1);
          },
          "-1")
      .sample("0-dimensional", {f32(), f32(), f32()}, [](auto& x, auto& y, auto& z) {
        return at::stack({x, y, z});
      });
  table.op("aten.hstack").over(pairs, [](auto& x, auto& y) { return at::hstack({x, y}); });
  table.op("aten.vstack").over(pairs, [](auto& x, auto& y) { return at::vstack({x, y}); });
  table.op("aten.dstack").over(pairs, [](auto& x, auto& y) { return at::dstack({x, y}); });
  table.op("aten.row_stack").over(pairs, [](auto& x, auto& y) { return at::row_stack({x, y}); });
  table.op("aten.column_stack")
      .over(pairs,
            [](auto& x, auto& y) {
              return at::column_stack({x, y});
            })
      .sample("vectors", {f32(3), f32(3)}, [](auto& x, auto& y) {
        return at::column_stack({x, y});
      });
  table.op("aten.block_diag")
      .sample("two", {f32(2, 3), f32(1, 2)},
              [](auto& x, auto& y) {
                return at::block_diag({x, y});
              })
      .sample("vector and number", {f32(3), f32()},
              [](auto& x, auto& y) {
                return at::block_diag({x, y});
              })
      .sample("mixed types", {f32(2, 2), f64(2, 2).transposed()}, [](auto& x, auto& y) {
        return at::block_diag({x, y});
      });
  table.op("aten.cartesian_prod")
      .sample("two", {f32(2), f32(3)},
              [](auto& x, auto& y) {
                return at::cartesian_prod({x, y});
              })
      .sample("one", {f32(2)}, [](auto& x) { return at::cartesian_prod({x}); })
      .sample("three", {i64(2), i64(3), i64(2)}, [](auto& x, auto& y, auto& z) {
        return at::cartesian_prod({x, y, z});
      });
  table.op("aten.combinations")
      .reads_values()
      .sample("2", {f32(4)}, [](auto& x) { return at::combinations(x); })
      .sample("3", {i64(4)}, [](auto& x) { return at::combinations(x, 3); })
      .sample("with replacement", {f64(3)}, [](auto& x) { return at::combinations(x, 2, true); });
}

void add_repetitions(SampleTable& table) {
  table.op("aten.repeat")
      .over(matrices(),
            [](auto& x) {
              return x.repeat({2, 1, 3});
            })
      .sample("0-dimensional", {f32()}, [](auto& x) { return x.repeat({3}); })
      .sample("none", {f32(2, 3)}, [](auto& x) {
        return x.repeat({0, 1});
      });
  table.op("aten.tile")
      .over(matrices(),
            [](auto& x) {
              return x.tile({2, 2});
            })
      .sample("fewer", {f32(2, 3)}, [](auto& x) { return x.tile({2}); });
  table.op("aten.repeat_interleave")
      .over(matrices(), [](auto& x) { return at::repeat_interleave(x, 2, 1); })
      .sample("flat", {f32(2, 3)}, [](auto& x) { return at::repeat_interleave(x, 3); });
  table.op("aten.roll")
      .over(matrices(),
            [](auto& x) {
              return at::roll(x, {1, -1}, {0, 1});
            })
      .sample("flat", {f32(2, 3)}, [](auto& x) { return at::roll(x, 2); })
      .sample("empty", {f32(0, 3)}, [](auto& x) { return at::roll(x, 1, 0); });
  table.op("aten.flip")
      .over(matrices(),
            [](auto& x) {
              return at::flip(x, {0, 1});
            })
      .sample("channels last", {f32(2, 3, 2, 2).channels_last()},
              [](auto& x) { return at::flip(x, {1}); })
      .sample("no dims", {f32(2, 3)}, [](auto& x) { return at::flip(x, at::IntArrayRef()); });
  table.op("aten.fliplr").over(matrices(), at::fliplr);
  table.op("aten.flipud").over(matrices(), at::flipud);
  table.op("aten.rot90")
      .over(
          matrices(), [](auto& x) { return at::rot90(x); }, "1")
      .over(
          matrices(), [](auto& x) { return at::rot90(x, 2); }, "2")
      .over(
          matrices(), [](auto& x) { return at::rot90(x, -1); }, "-1")
      .over(
          matrices(), [](auto& x) { return at::rot90(x, 4); }, "4");
  table.op("aten.constant_pad_nd")
      .over(matrices(),
            [](auto& x) {
              return at::constant_pad_nd(x, {1, 2}, 0.5);
            })
      .sample("negative", {f32(3, 4)},
              [](auto& x) {
                return at::constant_pad_nd(x, {-1, 2, 0, -1});
              })
      .sample("channels last", {f32(2, 3, 2, 2).channels_last()}, [](auto& x) {
        return at::constant_pad_nd(x, {1, 1});
      });
  table.op("aten.pixel_shuffle")
      .over({{f32(1, 4, 2, 3)}, {f32(1, 4, 2, 3).channels_last()}, {i64(4, 2, 2)}},
            [](auto& x) { return at::pixel_shuffle(x, 2); });
  table.op("aten.pixel_unshuffle")
      .over({{f32(1, 2, 4, 2)}, {f32(1, 2, 4, 2).channels_last()}, {f64(2, 2, 2)}},
            [](auto& x) { return at::pixel_unshuffle(x, 2); });
  table.op("aten.channel_shuffle")
      .over({{f32(1, 4, 2, 3)}, {f32(1, 4, 2, 3).channels_last()}, {f64(2, 4, 2)}},
            [](auto& x) { return at::channel_shuffle(x, 2); });
}

void add_triangles(SampleTable& table) {
  table.op("aten.tril")
      .over(matrices(), [](auto& x) { return at::tril(x); })
      .over(
          matrices(), [](auto& x) { return at::tril(x, -1); }, "-1")
      .sample("batch", {f32(2, 3, 3).permuted()}, [](auto& x) { return at::tril(x, 1); });
  table.op("aten.triu")
      .over(matrices(), [](auto& x) { return at::triu(x); })
      .over(
          matrices(), [](auto& x) { return at::triu(x, 1); }, "1")
      .sample("batch", {f32(2, 3, 3).permuted()}, [](auto& x) { return at::triu(x, -1); });
  table.op("aten.diag")
      .over(
          matrices(), [](auto& x) { return at::diag(x); }, "of a matrix")
      .over(
          unary_inputs(floating), [](auto& x) { return at::diag(x.reshape({-1}), 1); },
          "of a vector");
  table.op("aten.diag_embed")
      .over(matrices(), [](auto& x) { return at::diag_embed(x); })
      .over(
          matrices(), [](auto& x) { return at::diag_embed(x, 1, 0, 2); }, "off");
  table.op("aten.diagflat")
      .over(matrices(), [](auto& x) { return at::diagflat(x); })
      .over(
          matrices(), [](auto& x) { return at::diagflat(x, -1); }, "-1");
  table.op("aten.vander")
      .sample("integers", {i64(3)}, [](auto& x) { return at::vander(x, 2); })
      .not_differentiable()
      .sample("plain", {f32(3)}, [](auto& x) { return at::vander(x); })
      .sample("increasing", {f64(3)}, [](auto& x) { return at::vander(x, 4, true); });
  table.op("aten.linalg_vander")
      .sample("plain", {f32(3)}, [](auto& x) { return at::linalg_vander(x); })
      .sample("batch", {f64(2, 3)}, [](auto& x) { return at::linalg_vander(x, 4); })
      .sample("complex", {c64(3)}, [](auto& x) { return at::linalg_vander(x, 2); });
}

}  // namespace

void add(SampleTable& table) {
  add_concatenations(table);
  add_repetitions(table);
  add_triangles(table);
}

}  // namespace ahead::samples::joining_samples
