#include "ops/families.h"

namespace ahead::samples::indexing_samples {
namespace {

using torch::indexing::None;
using torch::indexing::Slice;

void add_picks(SampleTable& table) {
  std::vector<Inputs> pick = {{f32(4, 3).transposed(), index(4, 5)},
                              {f32(4, 3).strided(), index(4, 2)},
                              {f32(4, 3), index(4, 0)},
                              {f32(4, 3), index(4)},
                              {f32(4, 3), index(4, 6).strided()}};
  std::vector<Inputs> gather = {{f32(4, 3).transposed(), index(4, 2, 3)},
                                {f32(4, 3), index(4, 2, 3).transposed()},
                                {f32(4, 3), index(4, 1, 2)},
                                {f32(4, 3), index(4, 0, 3)}};
  for (at::ScalarType dtype : everything.list()) {
    pick.push_back({tensor(dtype, 4, 3), index(4, 5)});
    gather.push_back({tensor(dtype, 4, 3), index(4, 2, 3)});
  }
  table.op("aten.index_select")
      .over(pick, [](auto& x, auto& i) { return at::index_select(x, 0, i); })
      .sample("32 bit", {f32(3, 4), i32(2).range(0, 4)},
              [](auto& x, auto& i) { return at::index_select(x, -1, i); })
      .sample("0-dimensional", {f32(), index(1, 1)},
              [](auto& x, auto& i) { return at::index_select(x, 0, i); });
  table.op("aten.gather")
      .over(gather, [](auto& x, auto& i) { return at::gather(x, 0, i); })
      .sample("last", {f32(2, 4), index(4, 2, 3)},
              [](auto& x, auto& i) { return at::gather(x, -1, i); })
      .sample("0-dimensional", {f32(), index(1)},
              [](auto& x, auto& i) { return at::gather(x, 0, i); });
  table.op("aten.take_along_dim")
      .over(gather, [](auto& x, auto& i) { return at::take_along_dim(x, i.slice(1, 0, 1), 0); })
      .sample("flat", {f32(4, 3), index(12, 5)},
              [](auto& x, auto& i) { return at::take_along_dim(x, i); });
  table.op("aten.take")
      .over(pick, [](auto& x, auto& i) { return at::take(x, i); })
      .sample("shaped", {f32(4, 3), index(12, 2, 2)},
              [](auto& x, auto& i) { return at::take(x, i); });
}

void add_index(SampleTable& table) {
  table.op("aten.index")
      .sample("one", {f32(4, 3), index(4, 5)}, [](auto& x, auto& i) { return x.index({i}); })
      .sample("two", {f32(4, 3), index(4, 5), index(3, 5)},
              [](auto& x, auto& i, auto& j) {
                return x.index({i, j});
              })
      .sample("broadcast", {f32(4, 3), index(4, 2, 1), index(3, 5)},
              [](auto& x, auto& i, auto& j) {
                return x.index({i, j});
              })
      .sample("second only", {f32(4, 3), index(3, 5)},
              [](auto& x, auto& j) {
                return x.index({Slice(), j});
              })
      .sample("outer ones", {f32(4, 3, 5), index(4, 2), index(5, 2)},
              [](auto& x, auto& i, auto& j) {
                return x.index({i, Slice(), j});
              })
      .sample("slice and tensor", {f32(4, 3, 5), index(5, 2)},
              [](auto& x, auto& j) {
                return x.index({Slice(1, 3), 0, j});
              })
      .sample("ellipsis and none", {f32(4, 3, 5), index(5, 2)},
              [](auto& x, auto& j) {
                return x.index({"...", None, j});
              })
      .sample("negative", {f32(4, 3), i64(5).range(-4, 0)},
              [](auto& x, auto& i) { return x.index({i}); })
      .sample("32 bit", {f32(4, 3), i32(5).range(0, 4)},
              [](auto& x, auto& i) { return x.index({i}); })
      .sample("matrix", {f32(4, 3), index(4, 2, 2)}, [](auto& x, auto& i) { return x.index({i}); })
      .sample("0-dimensional", {f32(4, 3), index(4)},
              [](auto& x, auto& i) { return at::index(x, {i}); })
      .sample("none picked", {f32(4, 3), index(4, 0)},
              [](auto& x, auto& i) { return x.index({i}); })
      .sample("transposed", {f32(4, 3).transposed(), index(4, 5)},
              [](auto& x, auto& i) { return x.index({i}); })
      .sample("permuted", {f32(4, 3, 2).permuted(), index(3, 5)},
              [](auto& x, auto& j) {
                return x.index({Slice(), j});
              })
      .sample("channels last", {f32(2, 3, 4, 4).channels_last(), index(4, 2)},
              [](auto& x, auto& j) {
                return x.index({Slice(), Slice(), j});
              })
      .sample("integers", {i64(4, 3), index(4, 5)}, [](auto& x, auto& i) { return x.index({i}); })
      .sample("complex", {c64(4, 3), index(4, 5)}, [](auto& x, auto& i) { return x.index({i}); })
      .sample("half", {f16(4, 3), index(4, 5)}, [](auto& x, auto& i) { return x.index({i}); })
      .sample("only slices", {f32(4, 3)},
              [](auto& x) {
                return x.index({Slice(0, 3, 2), None, -1});
              })
      .reads_values()
      .sample("0-dimensional, as C++ indexing does it", {f32(4, 3), index(4)},
              [](auto& x, auto& i) { return x.index({i}); });
  table.op("aten._unsafe_index")
      .sample("one", {f32(4, 3), index(4, 5)},
              [](auto& x, auto& i) { return at::_unsafe_index(x, {i}); })
      .sample("second", {f32(4, 3), index(3, 5)},
              [](auto& x, auto& i) {
                return at::_unsafe_index(x, {std::nullopt, i});
              })
      .sample("two", {f64(4, 3), index(4, 5), index(3, 5)}, [](auto& x, auto& i, auto& j) {
        return at::_unsafe_index(x, {i, j});
      });
}

void add_masked_index(SampleTable& table) {
  table.op("aten._unsafe_masked_index")
      .sample("one", {f32(4, 3), b8(5), index(4, 5)},
              [](auto& x, auto& m, auto& i) {
                return at::_unsafe_masked_index(x, m.unsqueeze(1), {i}, 0.5);
              })
      .sample("two", {f64(4, 3), b8(5), index(4, 5), index(3, 5)},
              [](auto& x, auto& m, auto& i, auto& j) {
                return at::_unsafe_masked_index(x, m, {i, j}, 0);
              })
      .sample("transposed", {f32(4, 3).transposed(), b8(5), index(4, 5), index(3, 5)},
              [](auto& x, auto& m, auto& i, auto& j) {
                return at::_unsafe_masked_index(x, m, {i, j}, 1);
              });
  table.op("aten._unsafe_masked_index_put_accumulate")
      .sample("two", {f32(4, 3), b8(5), index(4, 5), index(3, 5), f32(5)},
              [](auto& x, auto& m, auto& i, auto& j, auto& v) {
                return at::_unsafe_masked_index_put_accumulate(x, m, {i, j}, v);
              })
      .sample("double", {f64(4, 3), b8(5), index(4, 5), index(3, 5), f64(5)},
              [](auto& x, auto& m, auto& i, auto& j, auto& v) {
                return at::_unsafe_masked_index_put_accumulate(x, m, {i, j}, v);
              })
      .sample("one", {f32(4), b8(5), index(4, 5), f32(5)}, [](auto& x, auto& m, auto& i, auto& v) {
        return at::_unsafe_masked_index_put_accumulate(x, m, {i}, v);
      });
}

void add_index_put(SampleTable& table) {
  const auto put = [](const at::Tensor& x, const at::Tensor& i, const at::Tensor& v) {
    return at::index_put(x, {i}, v);
  };
  table.op("aten.index_put")
      .sample("plain", {f32(4, 3), i64(4).permutation(), f32(4, 3)}, put)
      .sample("value broadcasts", {f32(4, 3), i64(3).permutation(), f32(3)}, put)
      .sample("0-dimensional value", {f32(4, 3), index(4, 2), f32()}, put)
      .sample("transposed", {f32(4, 3).transposed(), i64(3).permutation(), f32(3)}, put)
      .sample("integers", {i64(4, 3), i64(3).permutation(), i64(3)}, put)
      .sample("nothing", {f32(4, 3), index(4, 0), f32(0, 3)}, put)
      .sample("accumulate", {f32(4, 3), index(4, 6), f32(6, 3)},
              [](auto& x, auto& i, auto& v) { return at::index_put(x, {i}, v, true); })
      .sample("two", {f32(4, 3), i64(3).permutation(), i64(3).permutation(), f32(3)},
              [](auto& x, auto& i, auto& j, auto& v) {
                return at::index_put(x, {i, j}, v);
              })
      .sample("second", {f32(4, 3), i64(2).permutation(), f32(4, 2)},
              [](auto& x, auto& j, auto& v) {
                return at::index_put(x, {std::nullopt, j}, v);
              })
      .sample("mask and number", {f32(4, 3), b8(4, 3)},
              [](auto& x, auto& m) { return at::index_put(x, {m}, at::scalar_tensor(2.0)); });
  table.op("aten.index_put_")
      .in_place("plain", {f32(4, 3), i64(3).permutation(), f32(3)},
                [](at::Tensor x, auto& i, auto& v) { return x.index_put_({i}, v); })
      .in_place("number", {f32(4, 3), i64(3).permutation()},
                [](at::Tensor x, auto& i) { return x.index_put_({i}, 2.5); })
      .in_place("slice and tensor", {f32(4, 3), i64(2).permutation(), f32(2, 2)},
                [](at::Tensor x, auto& j, auto& v) {
                  return x.index_put_({Slice(1, 3), j}, v);
                })
      .in_place("accumulate", {f32(4, 3), index(4, 6), f32(6, 3)},
                [](auto& x, auto& i, auto& v) {
                  return x.index_put_(c10::List<std::optional<at::Tensor>>({i}), v, true);
                })
      .in_place("mask", {f32(4, 3), b8(4, 3)},
                [](at::Tensor x, auto& m) { return x.index_put_({m}, 0); });
  table.op("aten._unsafe_index_put")
      .sample("plain", {f32(4, 3), i64(3).permutation(), f32(3)},
              [](auto& x, auto& i, auto& v) { return at::_unsafe_index_put(x, {i}, v); })
      .sample("accumulate", {f32(4, 3), index(4, 6), f32(3)},
              [](auto& x, auto& i, auto& v) { return at::_unsafe_index_put(x, {i}, v, true); })
      .sample("double", {f64(4, 3), i64(3).permutation(), f64()},
              [](auto& x, auto& i, auto& v) { return at::_unsafe_index_put(x, {i}, v); });
}

void add_index_writes(SampleTable& table) {
  std::vector<Inputs> sets = {{f32(4, 3).transposed(), i64(2).permutation(), f32(2, 3)},
                              {f32(4, 3).strided(), i64(2).permutation(), f32(2, 3).transposed()},
                              {f32(4, 3), index(4, 0), f32(0, 3)}};
  for (at::ScalarType dtype : everything.list())
    sets.push_back({tensor(dtype, 4, 3), i64(3).permutation(), tensor(dtype, 3, 3)});
  table.op("aten.index_add")
      .over(sets, [](auto& x, auto& i, auto& v) { return at::index_add(x, 0, i, v); })
      .sample("alpha, repeated", {f32(3, 4), index(4, 6), f32(3, 6)},
              [](auto& x, auto& i, auto& v) { return at::index_add(x, 1, i, v, 2); });
  table.op("aten.index_add_")
      .in_place("1", {f32(3, 4), index(4, 6), f32(3, 6)},
                [](auto& x, auto& i, auto& v) { return x.index_add_(-1, i, v); });
  table.op("aten.index_copy").over(sets, [](auto& x, auto& i, auto& v) {
    return at::index_copy(x, 0, i, v);
  });
  table.op("aten.index_copy_")
      .in_place("1", {f32(3, 4), i64(2).permutation(), f32(3, 2)},
                [](auto& x, auto& i, auto& v) { return x.index_copy_(-1, i, v); });
  table.op("aten.index_fill")
      .over(
          sets, [](auto& x, auto& i, auto&) { return at::index_fill(x, 0, i, 1); }, "number")
      .gradient_reads_values()
      .sample("tensor", {f32(4, 3), index(3, 2), f32()},
              [](auto& x, auto& i, auto& v) { return at::index_fill(x, 1, i, v); });
  table.op("aten.index_fill_")
      .in_place("number", {f32(3, 4), index(4, 2)},
                [](auto& x, auto& i) { return x.index_fill_(-1, i, 2.5); })
      .gradient_reads_values()
      .in_place("tensor", {f32(3, 4), index(4, 2), f32()},
                [](auto& x, auto& i, auto& v) { return x.index_fill_(-1, i, v); });
  for (const char* reduce : {"prod", "mean", "amax", "amin"}) {
    table.op("aten.index_reduce")
        .sample(reduce, {f32(4, 3), index(4, 6), f32(6, 3)},
                [reduce](const at::Tensor& x, const at::Tensor& i, const at::Tensor& v) {
                  return at::index_reduce(x, 0, i, v, reduce);
                })
        .sample(std::string(reduce) + " without self", {f64(4, 3), index(4, 6), f64(6, 3)},
                [reduce](const at::Tensor& x, const at::Tensor& i, const at::Tensor& v) {
                  return at::index_reduce(x, 0, i, v, reduce, false);
                });
    table.op("aten.index_reduce_")
        .in_place(reduce, {f32(3, 4), index(4, 6), f32(3, 6)},
                  [reduce](const at::Tensor& x, const at::Tensor& i, const at::Tensor& v) {
                    return x.index_reduce_(-1, i, v, reduce);
                  });
  }
  table.op("aten.put")
      .sample("plain", {f32(4, 3), i64(3).permutation(), f32(3)},
              [](auto& x, auto& i, auto& v) { return at::put(x, i, v); })
      .sample("accumulate", {f32(4, 3), index(12, 3), f32(3)},
              [](auto& x, auto& i, auto& v) { return at::put(x, i, v, true); })
      .sample("transposed", {f64(4, 3).transposed(), i64(3).permutation(), f64(3)},
              [](auto& x, auto& i, auto& v) { return at::put(x, i, v); });
  table.op("aten.put_")
      .in_place("plain", {f32(4, 3), i64(3).permutation(), f32(3)},
                [](auto& x, auto& i, auto& v) { return x.put_(i, v); });
}

void add_scatters(SampleTable& table) {
  std::vector<Inputs> sets = {{f32(4, 3).transposed(), index(4, 1, 3), f32(1, 3)},
                              {f32(4, 3).strided(), index(4, 1, 2), f32(1, 2).transposed()},
                              {f32(4, 3), index(4, 0, 3), f32(0, 3)}};
  for (at::ScalarType dtype : everything.list())
    sets.push_back({tensor(dtype, 4, 3), index(4, 1, 3), tensor(dtype, 1, 3)});
  table.op("aten.scatter")
      .over(sets, [](auto& x, auto& i, auto& v) { return at::scatter(x, 0, i, v); })
      .over(
          sets, [](auto& x, auto& i, auto&) { return at::scatter(x, 0, i, 1); }, "number");
  table.op("aten.scatter_")
      .in_place("tensor", {f32(3, 4), index(4, 3, 1), f32(3, 1)},
                [](auto& x, auto& i, auto& v) { return x.scatter_(-1, i, v); })
      .in_place("number", {f32(3, 4), index(4, 3, 2)},
                [](auto& x, auto& i) { return x.scatter_(-1, i, 2.5); });
  table.op("aten.scatter")
      .not_differentiable()
      .sample("reduce add", {f32(4, 3), index(4, 2, 3), f32(2, 3)},
              [](auto& x, auto& i, auto& v) { return at::scatter(x, 0, i, v, "add"); })
      .sample("reduce multiply by a number", {f32(4, 3), index(4, 2, 3)},
              [](auto& x, auto& i) { return at::scatter(x, 0, i, 2, "multiply"); });
  table.op("aten.scatter_add")
      .over(sets, [](auto& x, auto& i, auto& v) { return at::scatter_add(x, 0, i, v); })
      .sample("repeated", {f32(4, 3), index(2, 4, 3), f32(4, 3)},
              [](auto& x, auto& i, auto& v) { return at::scatter_add(x, 1, i, v); });
  table.op("aten.scatter_add_")
      .in_place("plain", {f32(3, 4), index(4, 3, 2), f32(3, 2)},
                [](auto& x, auto& i, auto& v) { return x.scatter_add_(-1, i, v); });
  for (const char* reduce : {"sum", "prod", "mean", "amax", "amin"}) {
    table.op("aten.scatter_reduce")
        .sample(reduce, {f32(4, 3), index(4, 6, 3), f32(6, 3)},
                [reduce](const at::Tensor& x, const at::Tensor& i, const at::Tensor& v) {
                  return at::scatter_reduce(x, 0, i, v, reduce);
                })
        .sample(std::string(reduce) + " without self", {f64(4, 3), index(4, 6, 3), f64(6, 3)},
                [reduce](const at::Tensor& x, const at::Tensor& i, const at::Tensor& v) {
                  return at::scatter_reduce(x, 0, i, v, reduce, false);
                });
    table.op("aten.scatter_reduce_")
        .in_place(reduce, {f32(3, 4), index(4, 3, 6), f32(3, 6)},
                  [reduce](const at::Tensor& x, const at::Tensor& i, const at::Tensor& v) {
                    return x.scatter_reduce_(-1, i, v, reduce);
                  });
  }
}

}  // namespace

void add(SampleTable& table) {
  add_picks(table);
  add_index(table);
  add_masked_index(table);
  add_index_put(table);
  add_index_writes(table);
  add_scatters(table);
}

}  // namespace ahead::samples::indexing_samples
