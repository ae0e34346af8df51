#include "ops/families.h"

// Histograms, segments, and searches whose result has a size of its own.
namespace ahead::samples::binning_samples {
namespace {

void add_histograms(SampleTable& table) {
  const Inputs values = {f32(3, 4).no_grad()};
  table.op("aten.histogram")
      .sample("count", values, [](auto& x) { return at::histogram(x, 5); })
      .sample("range", {f64(7).strided().no_grad()},
              [](auto& x) {
                return at::histogram(x, 3, std::vector<double>{-1.0, 1.0}, std::nullopt, true);
              })
      .sample("weight", {f32(3, 4).transposed().no_grad(), f32(3, 4).positive().no_grad()},
              [](auto& x, auto& w) { return at::histogram(x, 4, std::nullopt, w); })
      .sample("edges", {f32(3, 4).no_grad()},
              [](auto& x) { return at::histogram(x, at::linspace(-1, 1, 6)); });
  table.op("aten.histogramdd")
      .sample("counts", {f32(6, 2).no_grad()},
              [](auto& x) {
                auto [hist, edges] = at::histogramdd(x, at::IntArrayRef{3, 4});
                return Tensors{hist, edges[0], edges[1]};
              })
      .sample("weight", {f32(6, 2).strided().no_grad(), f32(6).positive().no_grad()},
              [](auto& x, auto& w) {
                return std::get<0>(at::histogramdd(x, at::IntArrayRef{2, 3}, {}, w));
              })
      .sample("edges", {f64(6, 2).transposed().no_grad()}, [](auto& x) {
        const Tensors edges = {at::linspace(-2, 2, 4, at::kDouble),
                               at::linspace(-1, 1, 3, at::kDouble)};
        return std::get<0>(at::histogramdd(x, edges));
      });
}

void add_segments(SampleTable& table) {
  const auto reduce = [](const char* how) {
    return [how](const Tensors& in) { return at::segment_reduce(in[0], how, in[1]); };
  };
  for (const char* how : {"sum", "mean", "max", "min", "prod"}) {
    table.op("aten.segment_reduce")
        .sample(how, {f32(6).distinct(), i64(3).filled(2)}, reduce(how))
        .sample(std::string(how) + " rows", {f64(6, 3).distinct(), i64(2).filled(3)}, reduce(how));
  }
  table.op("aten.segment_reduce")
      .sample("axis 1", {f32(2, 4, 3).distinct(), i64(2, 2).filled(2)}, [](auto& x, auto& lengths) {
        return at::segment_reduce(x, "sum", lengths, std::nullopt, std::nullopt, 1);
      });
}

void add_searches(SampleTable& table) {
  table.op("aten.nonzero_static")
      .over(unary_inputs(Dtypes(at::kFloat) | at::kLong | at::kBool),
            [](auto& x) { return at::nonzero_static(x, 5); });
  table.op("aten.bucketize")
      .sample("number", {f32(5).permutation().no_grad()},
              [](auto& x) { return at::bucketize(0.5, std::get<0>(x.sort())); })
      .sample("int32", {f32(3, 4).transposed().no_grad(), f32(5).permutation().no_grad()},
              [](auto& x, auto& edges) {
                return at::bucketize(x, std::get<0>(edges.sort()), /*out_int32=*/true);
              });
  table.op("aten.searchsorted")
      .sample("number", {f32(5).permutation().no_grad()},
              [](auto& x) { return at::searchsorted(std::get<0>(x.sort()), 0.5); })
      .sample("rows", {f32(3, 5).no_grad(), f32(3, 2).transposed().no_grad()},
              [](auto& x, auto& y) { return at::searchsorted(std::get<0>(x.sort()), y); });
  table.op("aten.isin")
      .over(unary_inputs(Dtypes(at::kFloat) | at::kLong),
            [](auto& x) { return at::isin(x, at::arange(3, x.options().requires_grad(false))); })
      .sample("number in tensor", {f32(3, 4).no_grad()}, [](auto& x) { return at::isin(1.0, x); })
      .sample("tensor in number", {i64(3, 4)}, [](auto& x) { return at::isin(x, 1); });
  table.op("aten.repeat_interleave")
      .sample("repeats with size", {i64(3).filled(2)},
              [](auto& repeats) { return at::repeat_interleave(repeats, /*output_size=*/6); })
      .sample("along a dimension", {f32(3, 2), i64(3).filled(2)}, [](auto& x, auto& repeats) {
        return at::repeat_interleave(x, repeats, 0, /*output_size=*/6);
      });
}

}  // namespace

void add(SampleTable& table) {
  add_histograms(table);
  add_segments(table);
  add_searches(table);
}

}  // namespace ahead::samples::binning_samples
