#include "ops/families.h"

namespace ahead::samples::nn_embedding_samples {
namespace {

using at::Tensor;

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

/// How a bag of rows becomes one row, in LibTorch's numbers.
enum Mode : int64_t { Sum, Mean, Max };

/// Where three bags of two indices begin; with the end of the last one if that is to be included.
Tensor bags_of_two(const Tensor& indices, bool include_last = false) {
  return at::arange(0, include_last ? 7 : 6, 2, indices.options());
}

/// A table of rows, and six indices into it.
std::vector<Inputs> rows_and_indices(Dtypes dtypes) {
  std::vector<Inputs> sets;
  for (at::ScalarType dtype : dtypes.list()) sets.push_back({tensor(dtype, 7, 4), index(7, 6)});
  sets.push_back({f32(7, 4).transposed(), index(7, 6)});
  sets.push_back({f32(7, 4).strided(), index(7, 6).strided()});
  sets.push_back({f32(7, 4), i32(6).range(0, 7)});
  return sets;
}

void add_bags(SampleTable& table) {
  for (const auto& [mode, label] : {std::pair(Sum, "sum"), {Mean, "mean"}, {Max, "max"}}) {
    const auto plain = [mode = mode](auto& rows, auto& indices) {
      return std::get<0>(at::embedding_bag(rows, indices, bags_of_two(indices), false, mode));
    };
    const auto padded = [mode = mode](auto& rows, auto& indices) {
      return std::get<0>(at::embedding_bag(rows, indices, bags_of_two(indices, true), false, mode,
                                           false, {}, /*include_last_offset=*/true,
                                           /*padding_idx=*/2));
    };
    const auto forward_only = [mode = mode](auto& rows, auto& indices) {
      return at::_embedding_bag_forward_only(rows, indices, bags_of_two(indices), false, mode);
    };
    const std::vector<Inputs> sets = rows_and_indices(mode == Max ? full_floating : floating);
    table.op("aten.embedding_bag")
        .over(sets, plain, label)
        .over(sets, padded, label + std::string(", padded"));
    table.op("aten._embedding_bag_forward_only")
        .not_differentiable()
        .over(sets, forward_only, label);
  }
}

void add_weighted_bags(SampleTable& table) {
  const std::vector<Inputs> sets = {{f32(7, 4), index(7, 6), f32(6)},
                                    {f64(7, 4), index(7, 6), f64(6)},
                                    {f32(7, 4).transposed(), index(7, 6), f32(6).strided()}};
  table.op("aten.embedding_bag")
      .over(
          sets,
          [](auto& rows, auto& indices, auto& weights) {
            return std::get<0>(
                at::embedding_bag(rows, indices, bags_of_two(indices), false, Sum, false, weights));
          },
          "weights")
      .over(
          sets,
          [](auto& rows, auto& indices, auto&) {
            return std::get<0>(at::embedding_bag(rows, indices, bags_of_two(indices), true, Sum));
          },
          "scaled by frequency");
}

void add_gradients(SampleTable& table) {
  const auto gradient = [](auto& grad, auto& indices) {
    const Tensor bag_of_index = at::arange(6, indices.options()).floor_divide(2);
    const Tensor bag_sizes = at::full({3}, 2, indices.options()), no_maxima = bag_sizes;
    return at::_embedding_bag_dense_backward(grad, indices, bag_of_index, bag_sizes, no_maxima, 7,
                                             false, Mean, {});
  };
  table.op("aten._embedding_bag_dense_backward")
      .not_differentiable()
      .over({{f32(3, 4), index(7, 6)},
             {f64(3, 4), index(7, 6)},
             {f32(3, 4).transposed(), index(7, 6)},
             {f32(3, 4), i32(6).range(0, 7)}},
            gradient);
}

}  // namespace

void add(SampleTable& table) {
  add_embedding(table);
  add_bags(table);
  add_weighted_bags(table);
  add_gradients(table);
}

}  // namespace ahead::samples::nn_embedding_samples
