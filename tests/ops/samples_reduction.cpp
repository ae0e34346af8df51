#include "ops/families.h"

namespace ahead::samples::reduction_samples {
namespace {

/// LibTorch has another formula for tensors without data.
const char* const extreme_gradient = "the gradient of a traced tensor keeps its layout";

constexpr Dtypes not_complex = real | boolean;

using OverDims = std::function<Tensors(const at::Tensor&, at::IntArrayRef dims, bool keepdim)>;
using OverDim = std::function<Tensors(const at::Tensor&, int64_t dim, bool keepdim)>;

/// Whether the operator has a result for no elements at all.
enum class Empty : uint8_t { Allowed, Refused };

std::string dims_label(at::IntArrayRef dims, bool keepdim, const Input& input) {
  return c10::str("dims {", c10::Join(", ", dims), "}", keepdim ? " keep: " : ": ", input.str());
}

/// Samples of a reduction over any set of dimensions.
void add_over_dims(SampleTable::Builder builder, Dtypes dtypes, const OverDims& f,
                   Empty empty = Empty::Allowed) {
  const at::ScalarType first = dtypes.list().front();
  const auto add = [&](const Input& input, std::vector<int64_t> dims, bool keepdim) {
    builder.sample(dims_label(dims, keepdim, input), {input},
                   [f, dims, keepdim](const at::Tensor& x) { return f(x, dims, keepdim); });
  };
  const Input plain = tensor(first, 2, 3, 4).distinct();
  const std::vector<std::vector<int64_t>> sets = {{0}, {1}, {-1}, {0, 2}, {1, 2}, {2, 0, 1}};
  for (const auto& dims : sets) {
    add(plain, dims, false);
    add(plain, dims, true);
  }
  add(plain.permuted(), {1}, true);
  add(plain.strided(), {0, 1}, false);
  add(plain.expanded(), {0}, false);
  add(tensor(first, 2, 3, 2, 2).distinct().channels_last(), {2, 3}, true);
  add(tensor(first, 2, 3, 2, 2).distinct().channels_last(), {1}, false);
  add(tensor(first), {0}, false);
  if (empty == Empty::Allowed) add(tensor(first, 2, 0), {1}, false);
  add(tensor(first, 0, 2), {1}, true);
  for (at::ScalarType dtype : dtypes.list()) {
    if (dtype != first) add(tensor(dtype, 3, 4), {0}, false);
    if (dtype != first) add(tensor(dtype, 3, 4).transposed(), {-1}, true);
  }
}

/// Samples of a reduction over one dimension, without zeros if the domain is Positive.
void add_over_dim(SampleTable::Builder builder, Dtypes dtypes, const OverDim& f,
                  Domain domain = Domain::Any) {
  const at::ScalarType first = dtypes.list().front();
  const auto add = [&](const Input& input, int64_t dim, bool keepdim) {
    builder.sample(dims_label({dim}, keepdim, input), {input},
                   [f, dim, keepdim](const at::Tensor& x) { return f(x, dim, keepdim); });
  };
  const auto fill = [&](const Input& input) {
    return domain == Domain::Positive ? input.positive() : input.distinct();
  };
  const Input plain = fill(tensor(first, 2, 3, 4));
  for (int64_t dim : {0, 1, 2, -1}) {
    add(plain, dim, false);
    add(plain, dim, true);
  }
  add(plain.permuted(), 1, true);
  add(plain.strided(), 0, false);
  add(fill(tensor(first, 2, 3, 2, 2)).channels_last(), 1, false);
  add(tensor(first), 0, false);
  add(tensor(first, 0, 2), 1, true);
  for (at::ScalarType dtype : dtypes.list()) {
    if (dtype != first) add(tensor(dtype, 3, 4), 0, false);
    if (dtype != first) add(tensor(dtype, 3, 4).transposed(), -1, true);
  }
}

/// Samples of a reduction of all elements.
template <class F>
void add_full(SampleTable::Builder builder, Dtypes dtypes, F f, Empty empty = Empty::Allowed) {
  for (Inputs& inputs : unary_inputs(dtypes)) {
    const bool is_empty =
        inputs[0].str().find('0') != std::string::npos && inputs[0].make(0).numel() == 0;
    if (is_empty && empty == Empty::Refused) continue;
    builder.over({inputs}, f, "all");
  }
}

void add_sums(SampleTable& table) {
  add_over_dims(table.op("aten.sum"), everything,
                [](auto& x, auto dims, bool keep) { return Tensors{at::sum(x, dims, keep)}; });
  add_full(table.op("aten.sum"), everything, [](auto& x) { return at::sum(x); });
  table.op("aten.sum")
      .sample("dtype", {f32(2, 3)}, [](auto& x) { return at::sum(x, at::kDouble); })
      .sample("dims and dtype", {i32(2, 3)},
              [](auto& x) { return at::sum(x, {0}, true, at::kFloat); })
      .sample("no dims", {f32(2, 3)},
              [](auto& x) { return at::sum(x, at::OptionalIntArrayRef(), true); });
  add_over_dims(table.op("aten.nansum"), not_complex,
                [](auto& x, auto dims, bool keep) { return Tensors{at::nansum(x, dims, keep)}; });
  add_full(table.op("aten.nansum"), not_complex, [](auto& x) { return at::nansum(x); });
  add_over_dims(table.op("aten.mean"), floating | complex,
                [](auto& x, auto dims, bool keep) { return Tensors{at::mean(x, dims, keep)}; });
  add_full(table.op("aten.mean"), floating | complex, [](auto& x) { return at::mean(x); });
  table.op("aten.mean").sample("integers as float", {i64(3)}, [](auto& x) {
    return at::mean(x, at::kFloat);
  });
  add_over_dims(table.op("aten.nanmean"), floating,
                [](auto& x, auto dims, bool keep) { return Tensors{at::nanmean(x, dims, keep)}; });
  table.op("aten.nanmean").sample("NaN", {f32(4, 5).specials()}, [](auto& x) {
    return at::nanmean(x, {1});
  });
  // Beside zeros, eager's gradient of a tensor that is not contiguous lies otherwise.
  add_over_dim(
      table.op("aten.prod"), everything,
      [](auto& x, int64_t dim, bool keep) { return Tensors{at::prod(x, dim, keep)}; },
      Domain::Positive);
  table.op("aten.prod")
      .over(
          unary_inputs(everything, Domain::Positive), [](auto& x) { return at::prod(x); }, "all")
      .over(
          {{f32(4, 5).specials()}, {c64(7).specials()}}, [](auto& x) { return at::prod(x); }, "all")
      .sample("one zero", {i64(5).permutation()},
              [](auto& x) { return at::prod(x.to(at::kFloat)); })
      .sample("all zeros", {f32(5).filled(0)}, [](auto& x) { return at::prod(x); });
  add_over_dims(table.op("aten.logsumexp"), floating | complex, [](auto& x, auto dims, bool keep) {
    return Tensors{at::logsumexp(x, dims, keep)};
  });
  add_over_dims(table.op("aten.special_logsumexp"), floating, [](auto& x, auto dims, bool keep) {
    return Tensors{at::special_logsumexp(x, dims, keep)};
  });
  add_over_dims(table.op("aten.count_nonzero"), everything,
                [](auto& x, auto dims, bool) { return Tensors{at::count_nonzero(x, dims)}; });
  add_full(table.op("aten.count_nonzero"), everything,
           [](auto& x) { return at::count_nonzero(x); });
}

void add_extremes(SampleTable& table) {
  const auto pair = [](std::tuple<at::Tensor, at::Tensor> both) {
    return Tensors{std::get<0>(both), std::get<1>(both)};
  };
  add_over_dims(
      table.op("aten.amax"), not_complex,
      [](auto& x, auto dims, bool keep) { return Tensors{at::amax(x, dims, keep)}; },
      Empty::Refused);
  add_over_dims(
      table.op("aten.amin"), not_complex,
      [](auto& x, auto dims, bool keep) { return Tensors{at::amin(x, dims, keep)}; },
      Empty::Refused);
  table.op("aten.amax").sample("ties", {f32(2, 3).filled(1)}, [](auto& x) {
    return at::amax(x, {0});
  });
  add_over_dim(table.op("aten.aminmax"), not_complex,
               [=](auto& x, int64_t dim, bool keep) { return pair(at::aminmax(x, dim, keep)); });
  add_full(
      table.op("aten.aminmax"), not_complex, [](auto& x) { return at::aminmax(x); },
      Empty::Refused);
  add_over_dim(table.op("aten.max"), not_complex,
               [=](auto& x, int64_t dim, bool keep) { return pair(at::max(x, dim, keep)); });
  add_full(
      table.op("aten.max").gradient_rounds(extreme_gradient), not_complex,
      [](auto& x) { return at::max(x); }, Empty::Refused);
  table.op("aten.max")
      .over(
          binary_inputs(real), [](auto& x, auto& y) { return at::max(x, y); }, "two");
  add_over_dim(table.op("aten.min"), not_complex,
               [=](auto& x, int64_t dim, bool keep) { return pair(at::min(x, dim, keep)); });
  add_full(
      table.op("aten.min").gradient_rounds(extreme_gradient), not_complex,
      [](auto& x) { return at::min(x); }, Empty::Refused);
  table.op("aten.min")
      .over(
          binary_inputs(real), [](auto& x, auto& y) { return at::min(x, y); }, "two");
  add_over_dim(table.op("aten.argmax"), real,
               [](auto& x, int64_t dim, bool keep) { return Tensors{at::argmax(x, dim, keep)}; });
  add_full(
      table.op("aten.argmax"), real, [](auto& x) { return at::argmax(x); }, Empty::Refused);
  add_over_dim(table.op("aten.argmin"), real,
               [](auto& x, int64_t dim, bool keep) { return Tensors{at::argmin(x, dim, keep)}; });
  add_full(
      table.op("aten.argmin"), real, [](auto& x) { return at::argmin(x); }, Empty::Refused);
  add_over_dims(table.op("aten.all"), everything, [](auto& x, auto dims, bool keep) {
    return Tensors{at::all(x, at::OptionalIntArrayRef(dims), keep)};
  });
  add_full(table.op("aten.all"), everything, [](auto& x) { return at::all(x); });
  table.op("aten.all").sample("one dim", {f32(2, 3)}, [](auto& x) { return at::all(x, 1, true); });
  add_over_dims(table.op("aten.any"), everything, [](auto& x, auto dims, bool keep) {
    return Tensors{at::any(x, at::OptionalIntArrayRef(dims), keep)};
  });
  add_full(table.op("aten.any"), everything, [](auto& x) { return at::any(x); });
  table.op("aten.any").sample("one dim", {f32(2, 3)}, [](auto& x) { return at::any(x, 1, true); });
}

void add_spreads(SampleTable& table) {
  const auto pair = [](std::tuple<at::Tensor, at::Tensor> both) {
    return Tensors{std::get<0>(both), std::get<1>(both)};
  };
  add_over_dims(table.op("aten.var"), floating | complex,
                [](auto& x, auto dims, bool keep) { return Tensors{at::var(x, dims, 1, keep)}; });
  add_over_dims(table.op("aten.std"), floating | complex,
                [](auto& x, auto dims, bool keep) { return Tensors{at::std(x, dims, 1, keep)}; });
  add_over_dims(table.op("aten.var_mean"), floating | complex, [=](auto& x, auto dims, bool keep) {
    return pair(at::var_mean(x, dims, 1, keep));
  });
  add_over_dims(table.op("aten.std_mean"), floating | complex, [=](auto& x, auto dims, bool keep) {
    return pair(at::std_mean(x, dims, 1, keep));
  });
  table.op("aten.var")
      .sample("all", {f32(2, 3)}, [](auto& x) { return at::var(x); })
      .sample("biased", {f32(2, 3)}, [](auto& x) { return at::var(x, /*unbiased=*/false); })
      .sample("correction 0", {f64(2, 3)}, [](auto& x) { return at::var(x, {1}, 0, false); })
      .sample("dims biased", {f32(2, 3)}, [](auto& x) { return at::var(x, {1}, false, true); });
  table.op("aten.std")
      .sample("all", {f32(2, 3)}, [](auto& x) { return at::std(x); })
      .sample("biased", {f32(2, 3)}, [](auto& x) { return at::std(x, /*unbiased=*/false); })
      .sample("constant", {f32(2, 3).filled(2)}, [](auto& x) { return at::std(x, {1}, 0, false); });
  table.op("aten.var_mean").sample("all", {f32(2, 3)}, [](auto& x) { return at::var_mean(x); });
  table.op("aten.std_mean").sample("all", {f32(2, 3)}, [](auto& x) { return at::std_mean(x); });
}

void add_norms(SampleTable& table) {
  for (double p : {0.0, 1.0, 2.0, 3.0, std::numeric_limits<double>::infinity()}) {
    const std::string name = c10::str("p ", p);
    table.op("aten.norm")
        .sample(name + " all", {f32(2, 3)}, [p](const at::Tensor& x) { return at::norm(x, p); })
        .sample(name + " dims", {f32(2, 3, 4)}, [p](const at::Tensor& x) {
          return at::norm(x, p, std::vector<int64_t>{0, 2}, true);
        });
    table.op("aten.linalg_vector_norm")
        .sample(name + " all", {f32(2, 3)},
                [p](const at::Tensor& x) { return at::linalg_vector_norm(x, p); })
        .sample(name + " dims", {f64(2, 3, 4)},
                [p](const at::Tensor& x) {
                  return at::linalg_vector_norm(x, p, {0, 2}, true);
                })
        .sample(name + " complex", {c64(2, 3)},
                [p](const at::Tensor& x) { return at::linalg_vector_norm(x, p, {1}); });
    table.op("aten.linalg_norm").sample(name, {f32(6)}, [p](const at::Tensor& x) {
      return at::linalg_norm(x, p);
    });
    if (p == 0) continue;
    table.op("aten.dist")
        .sample(name, {f32(2, 3), f32(3)},
                [p](const at::Tensor& x, const at::Tensor& y) { return at::dist(x, y, p); });
    table.op("aten.renorm").sample(name, {f32(2, 3)}, [p](const at::Tensor& x) {
      return at::renorm(x, p, 0, 1.0);
    });
    table.op("aten.renorm_").in_place(name, {f32(2, 3)}, [p](const at::Tensor& x) {
      return x.renorm_(p, 1, 1.0);
    });
  }
  add_over_dims(table.op("aten.linalg_vector_norm"), floating | complex,
                [](auto& x, auto dims, bool keep) {
                  return Tensors{at::linalg_vector_norm(x, 2, dims, keep)};
                });
  table.op("aten.norm")
      .sample("dtype", {f16(2, 3)}, [](auto& x) { return at::norm(x, 2, at::kFloat); })
      .sample("plain", {f32(2, 3)}, [](auto& x) { return at::norm(x); })
      .sample("zeros", {f32(2, 3).filled(0)}, [](auto& x) { return at::norm(x); })
      .sample("complex", {c64(2, 3)}, [](auto& x) { return at::norm(x); });
  table.op("aten.linalg_norm").sample("matrix", {f32(2, 3)}, [](auto& x) {
    return at::linalg_norm(x);
  });
  table.op("aten.linalg_matrix_norm")
      .sample("frobenius", {f32(2, 3, 4)}, [](auto& x) { return at::linalg_matrix_norm(x); })
      .sample("1", {f32(3, 4)},
              [](auto& x) {
                return at::linalg_matrix_norm(x, 1, {0, 1}, true);
              })
      .sample("infinity", {f64(3, 4)}, [](auto& x) { return at::linalg_matrix_norm(x, INFINITY); });
  table.op("aten.frobenius_norm")
      .sample("dims", {f32(2, 3, 4)},
              [](auto& x) {
                return at::frobenius_norm(x, {0, 1});
              })
      .sample("keep", {f64(3, 4)}, [](auto& x) { return at::frobenius_norm(x, {1}, true); })
      .sample("complex", {c64(3, 4)}, [](auto& x) { return at::frobenius_norm(x, {0}); });
}

}  // namespace

void add(SampleTable& table) {
  add_sums(table);
  add_extremes(table);
  add_spreads(table);
  add_norms(table);
}

}  // namespace ahead::samples::reduction_samples
