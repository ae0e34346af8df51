#include "ops/families.h"

// Sorting, ranks, order statistics and everything cumulative.
namespace ahead::samples::ordering_samples {
namespace {

constexpr Dtypes not_complex = real | boolean;

using AlongDim = std::function<Tensors(const at::Tensor&, int64_t dim)>;

/// Samples of an operator along one dimension that keeps the shape or shrinks that dimension.
void add_along(SampleTable::Builder builder, Dtypes dtypes, const AlongDim& f,
               bool zero_dim = true) {
  const at::ScalarType first = dtypes.list().front();
  const auto add = [&](const Input& input, int64_t dim) {
    builder.sample(c10::str("dim ", dim, ": ", input.str()), {input},
                   [f, dim](const at::Tensor& x) { return f(x, dim); });
  };
  const Input plain = tensor(first, 2, 3, 4).distinct();
  for (int64_t dim : {0, 1, 2, -1}) add(plain, dim);
  add(plain.permuted(), 1);
  add(plain.strided(), 0);
  add(plain.expanded(), 2);
  add(tensor(first, 2, 3, 2, 2).distinct().channels_last(), 1);
  if (zero_dim) add(tensor(first), 0);
  add(tensor(first, 0, 3), 1);
  for (at::ScalarType dtype : dtypes.list()) {
    if (dtype != first) add(tensor(dtype, 3, 4), 0);
    if (dtype != first) add(tensor(dtype, 3, 4).transposed(), -1);
  }
}

template <class... T>
Tensors list(std::tuple<T...> results) {
  return detail::to_list(results);
}

void add_sorts(SampleTable& table) {
  add_along(table.op("aten.sort"), not_complex,
            [](auto& x, int64_t dim) { return list(at::sort(x, dim)); });
  table.op("aten.sort")
      .sample("descending", {f32(2, 5).distinct()}, [](auto& x) { return at::sort(x, 1, true); })
      .sample("stable with ties", {i64(20).range(0, 4)},
              [](auto& x) { return at::sort(x, true, 0, false); })
      .sample("stable descending", {f32(4, 5).specials()},
              [](auto& x) { return at::sort(x, true, 1, true); });
  add_along(table.op("aten.argsort"), not_complex,
            [](auto& x, int64_t dim) { return Tensors{at::argsort(x, dim)}; });
  table.op("aten.argsort").sample("stable", {i64(20).range(0, 4)}, [](auto& x) {
    return at::argsort(x, true, 0, true);
  });
  add_along(table.op("aten.topk"), real,
            [](auto& x, int64_t dim) { return list(at::topk(x, 1, dim)); });
  table.op("aten.topk")
      .sample("two smallest", {f32(3, 5).distinct()},
              [](auto& x) { return at::topk(x, 2, 1, false); })
      .sample("none", {f32(3, 5).distinct()}, [](auto& x) { return at::topk(x, 0, 1); })
      .sample("unsorted", {f32(9).distinct()},
              [](auto& x) { return at::topk(x, 4, 0, true, false); });
  table.op("aten.msort").over(unary_inputs(real), [](auto& x) {
    return at::msort(x.reshape({-1}));
  });
  table.op("aten.searchsorted")
      .sample("plain", {f32(5).filled(2), f32(3)},
              [](auto& s, auto& x) { return at::searchsorted(s, x); })
      .sample("right, 32 bit", {f32(2, 5).filled(0), f32(2, 3)},
              [](auto& s, auto& x) { return at::searchsorted(s, x, true, true); })
      .sample("number", {i64(5).filled(3)}, [](auto& s) { return at::searchsorted(s, 3); })
      .sample("sorter", {f32(5).distinct(), f32(3), i64(5).permutation()},
              [](auto& s, auto& x, auto& o) {
                return at::searchsorted(s, x, false, false, std::nullopt, o);
              });
  table.op("aten.bucketize")
      .sample("plain", {f32(2, 3), f32(4).filled(0)},
              [](auto& x, auto& b) { return at::bucketize(x, b); })
      .sample("transposed", {f32(2, 3).transposed(), f32(4).filled(0)},
              [](auto& x, auto& b) { return at::bucketize(x, b, true, true); })
      .sample("number", {f32(4).filled(0)}, [](auto& b) { return at::bucketize(0.5, b); });
}

void add_ranks(SampleTable& table) {
  add_along(table.op("aten.median"), real,
            [](auto& x, int64_t dim) { return list(at::median(x, dim)); });
  table.op("aten.median")
      .sample("all", {f32(3, 5).distinct()}, [](auto& x) { return at::median(x); })
      .sample("keep", {f32(3, 5).distinct()}, [](auto& x) { return at::median(x, 1, true); });
  add_along(table.op("aten.nanmedian"), real,
            [](auto& x, int64_t dim) { return list(at::nanmedian(x, dim)); });
  table.op("aten.nanmedian").sample("all", {f32(4, 5).specials()}, [](auto& x) {
    return at::nanmedian(x);
  });
  add_along(table.op("aten.mode"), not_complex,
            [](auto& x, int64_t dim) { return list(at::mode(x, dim)); });
  table.op("aten.mode").sample("keep", {i64(3, 9).range(0, 3)}, [](auto& x) {
    return at::mode(x, 1, true);
  });
  add_along(table.op("aten.kthvalue"), real,
            [](auto& x, int64_t dim) { return list(at::kthvalue(x, 1, dim)); });
  table.op("aten.kthvalue").sample("third, keep", {f64(2, 5).distinct()}, [](auto& x) {
    return at::kthvalue(x, 3, 1, true);
  });
  table.op("aten.quantile")
      .sample("number", {f32(3, 5)}, [](auto& x) { return at::quantile(x, 0.3); })
      .sample("number along a dimension", {f64(3, 5).transposed()},
              [](auto& x) { return at::quantile(x, 0.3, 1, true); })
      .sample("nearest", {f32(3, 5)},
              [](auto& x) { return at::quantile(x, 0.7, 0, false, "nearest"); })
      .sample("tensor", {f32(3, 5), f32(2).range(0, 1).no_grad()},
              [](auto& x, auto& q) { return at::quantile(x, q, 1); });
  table.op("aten.nanquantile")
      .sample("number", {f32(3, 5)}, [](auto& x) { return at::nanquantile(x, 0.3); })
      .sample("midpoint", {f32(3, 5)},
              [](auto& x) { return at::nanquantile(x, 0.7, 0, false, "midpoint"); })
      .sample("tensor", {f64(3, 5), f64(2).range(0, 1).no_grad()},
              [](auto& x, auto& q) { return at::nanquantile(x, q, 1); });
  table.op("aten.histc")
      .sample("plain", {f32(9)}, [](auto& x) { return at::histc(x, 4, -2, 2); })
      .sample("double", {f64(3, 3)}, [](auto& x) { return at::histc(x, 5, -1, 1); })
      .sample("range of the data", {f32(9)}, [](auto& x) { return at::histc(x, 4); });
}

void add_cumulative(SampleTable& table) {
  add_along(table.op("aten.cumsum"), everything,
            [](auto& x, int64_t dim) { return Tensors{at::cumsum(x, dim)}; });
  table.op("aten.cumsum").sample("dtype", {f32(3)}, [](auto& x) {
    return at::cumsum(x, 0, at::kDouble);
  });
  table.op("aten.cumsum_").in_place("0", {f32(3, 2)}, [](auto& x) { return x.cumsum_(0); });
  add_along(table.op("aten.cumprod"), everything,
            [](auto& x, int64_t dim) { return Tensors{at::cumprod(x, dim)}; });
  table.op("aten.cumprod_").in_place("1", {f32(3, 2)}, [](auto& x) { return x.cumprod_(1); });
  add_along(table.op("aten.cummax"), not_complex,
            [](auto& x, int64_t dim) { return list(at::cummax(x, dim)); });
  add_along(table.op("aten.cummin"), not_complex,
            [](auto& x, int64_t dim) { return list(at::cummin(x, dim)); });
  add_along(table.op("aten.logcumsumexp"), floating | complex,
            [](auto& x, int64_t dim) { return Tensors{at::logcumsumexp(x, dim)}; });
  add_along(
      table.op("aten.diff"), everything,
      [](auto& x, int64_t dim) { return Tensors{at::diff(x, 1, dim)}; }, false);
  table.op("aten.diff")
      .sample("twice", {f32(2, 5)}, [](auto& x) { return at::diff(x, 2); })
      .sample("prepend, append", {f32(2, 3), f32(2, 1), f32(2, 2)},
              [](auto& x, auto& a, auto& b) { return at::diff(x, 1, 1, a, b); });
  add_along(
      table.op("aten.trapezoid"), floating | complex,
      [](auto& x, int64_t dim) { return Tensors{at::trapezoid(x, 0.5, dim)}; }, false);
  table.op("aten.trapezoid").sample("x", {f32(2, 4), f32(4)}, [](auto& y, auto& x) {
    return at::trapezoid(y, x);
  });
  add_along(
      table.op("aten.cumulative_trapezoid"), floating,
      [](auto& x, int64_t dim) { return Tensors{at::cumulative_trapezoid(x, 2, dim)}; }, false);
  table.op("aten.cumulative_trapezoid").sample("x", {f32(2, 4), f32(4)}, [](auto& y, auto& x) {
    return at::cumulative_trapezoid(y, x);
  });
  table.op("aten.trapz")
      .sample("step", {f32(2, 4)}, [](auto& y) { return at::trapz(y, 0.5); })
      .sample("x", {f64(2, 4), f64(4)}, [](auto& y, auto& x) { return at::trapz(y, x); })
      .sample("x of the same shape", {f32(2, 4), f32(2, 4)},
              [](auto& y, auto& x) { return at::trapz(y, x, 0); });
  table.op("aten.gradient")
      .sample("plain", {f32(4, 5)}, [](auto& x) { return at::gradient(x); })
      .sample("spacing and dim", {f32(4, 5)},
              [](auto& x) {
                return at::gradient(x, std::optional<at::Scalar>(0.5), std::optional<int64_t>(1));
              })
      .sample("edge order 2", {f64(6)}, [](auto& x) {
        return at::gradient(x, std::optional<at::Scalar>(1), std::optional<int64_t>(0), 2);
      });
}

void add_statistics(SampleTable& table) {
  table.op("aten.cov")
      .reads_values()
      .sample("plain", {f32(3, 5)}, [](auto& x) { return at::cov(x); })
      .sample("biased", {f64(3, 5)}, [](auto& x) { return at::cov(x, 0); })
      .sample("vector", {f32(5)}, [](auto& x) { return at::cov(x); })
      .sample("complex", {c64(3, 5)}, [](auto& x) { return at::cov(x); });
  table.op("aten.corrcoef")
      .reads_values()
      .sample("plain", {f32(3, 5)}, [](auto& x) { return at::corrcoef(x); })
      .sample("double, transposed", {f64(3, 5).transposed()},
              [](auto& x) { return at::corrcoef(x); })
      .sample("vector", {f32(5)}, [](auto& x) { return at::corrcoef(x); });
  table.op("aten.cdist")
      .sample("2", {f32(3, 2), f32(4, 2)}, [](auto& x, auto& y) { return at::cdist(x, y); })
      .sample("1", {f32(3, 2), f32(4, 2)}, [](auto& x, auto& y) { return at::cdist(x, y, 1); })
      .sample("batch", {f64(2, 3, 2), f64(4, 2)},
              [](auto& x, auto& y) { return at::cdist(x, y, 3); })
      .sample("by matrix product", {f32(3, 2), f32(4, 2)},
              [](auto& x, auto& y) { return at::cdist(x, y, 2, 1); });
  table.op("aten.pdist")
      .sample("2", {f32(4, 3)}, [](auto& x) { return at::pdist(x); })
      .sample("1", {f64(4, 3)}, [](auto& x) { return at::pdist(x, 1); })
      .sample("3, transposed", {f32(4, 3).transposed()}, [](auto& x) { return at::pdist(x, 3); });
  table.op("aten.trace")
      .sample("square", {f32(3, 3)}, [](auto& x) { return at::trace(x); })
      .sample("wide, transposed", {f32(3, 4).transposed()}, [](auto& x) { return at::trace(x); })
      .sample("integers", {i32(3, 3)}, [](auto& x) { return at::trace(x); })
      .sample("complex", {c64(3, 3)}, [](auto& x) { return at::trace(x); });
}

}  // namespace

void add(SampleTable& table) {
  add_sorts(table);
  add_ranks(table);
  add_cumulative(table);
  add_statistics(table);
}

}  // namespace ahead::samples::ordering_samples
