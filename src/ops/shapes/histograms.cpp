#include "ops/shapes/families.h"
#include "ops/shapes/make.h"

namespace ahead::ops::shapes {
namespace {

using at::IntArrayRef;
using at::Scalar;
using at::Tensor;
using TwoTensors = std::tuple<Tensor, Tensor>;
using Range = std::optional<at::ArrayRef<double>>;
using Weight = std::optional<Tensor>;

Tensor histc(const Tensor& self, int64_t bins, const Scalar&, const Scalar&) {
  TORCH_CHECK(bins > 0, "bins must be > 0");
  return make({bins}, self.scalar_type());
}

TwoTensors histogram(const Tensor& self, int64_t bins, Range, const Weight&, bool) {
  TORCH_CHECK(bins > 0, "bins must be > 0, but got ", bins);
  return {make({bins}, self.scalar_type()), make({bins + 1}, self.scalar_type())};
}

TwoTensors histogram_of_edges(const Tensor& self, const Tensor& edges, const Weight&, bool) {
  TORCH_CHECK(edges.dim() == 1 && edges.numel() > 0, "the edges of bins must be a 1D tensor");
  return {make({edges.numel() - 1}, self.scalar_type()), make_like(edges)};
}

std::vector<Tensor> bin_edges(const Tensor& self, IntArrayRef bins, Range, const Weight&, bool) {
  std::vector<Tensor> edges;
  for (int64_t count : bins) edges.push_back(make({count + 1}, self.scalar_type()));
  return edges;
}

Tensor histogram_of_counts(const Tensor& self, IntArrayRef bins, Range, const Weight&, bool) {
  return make(bins, self.scalar_type());
}

Tensor histogram_of_all_edges(const Tensor& self, at::TensorList edges, const Weight&, bool) {
  at::DimVector sizes;
  for (const Tensor& along : edges) sizes.push_back(along.numel() - 1);
  return make(sizes, self.scalar_type());
}

}  // namespace

void add_histogram_rules(ShapeRules& rules) {
  rules.add("histc", TORCH_FN(histc));
  rules.add("histogram.bin_ct", TORCH_FN(histogram));
  rules.add("histogram.bins_tensor", TORCH_FN(histogram_of_edges));
  rules.add("_histogramdd_bin_edges", TORCH_FN(bin_edges));
  rules.add("_histogramdd_from_bin_cts", TORCH_FN(histogram_of_counts));
  rules.add("_histogramdd_from_bin_tensors", TORCH_FN(histogram_of_all_edges));
}

}  // namespace ahead::ops::shapes
