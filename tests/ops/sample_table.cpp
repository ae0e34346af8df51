#include <torch/headeronly/version.h>

#include <algorithm>

#include "ops/families.h"

namespace ahead::samples {
namespace {

/// What LibTorch before 2.13 does differently.
void adapt_to_older_libtorch(Sample& sample) {
  const auto is_any_of = [&](std::initializer_list<const char*> names) {
    return std::find(names.begin(), names.end(), sample.op) != names.end();
  };
  if (is_any_of({"aten.nextafter", "aten.nextafter_", "aten.aminmax"}))
    sample.differentiable = false;
  if (is_any_of({"aten.quantile", "aten.nanquantile"})) sample.reads_values = true;
  if (is_any_of({"aten._grid_sampler_2d_cpu_fallback"})) sample.gradient_reads_values = true;
  if (is_any_of({"aten.cumprod", "aten.cumprod_", "aten.linalg_vander", "aten.vander"}))
    sample.gradient_rounds = "eager has a formula of its own for tensors without zeros";
}

}  // namespace

const SampleTable& sample_table() {
  static const SampleTable table = [] {
    SampleTable made;
    unary_samples::add(made);
    binary_samples::add(made);
    pointwise_samples::add(made);
    reduction_samples::add(made);
    ordering_samples::add(made);
    view_samples::add(made);
    in_place_samples::add(made);
    joining_samples::add(made);
    matmul_samples::add(made);
    indexing_samples::add(made);
    factory_samples::add(made);
    complex_samples::add(made);
    random_samples::add(made);
    foreach_samples::add(made);
    linalg_samples::add(made);
    binning_samples::add(made);
    fake_quantize_samples::add(made);
    kernel_samples::add(made);
    reading_samples::add(made);
    nn_padding_samples::add(made);
    nn_rnn_samples::add(made);
    nn_layers_samples::add(made);
    nn_upsampling_samples::add(made);
    nn_loss_samples::add(made);
    nn_convolution_samples::add(made);
    nn_normalisation_samples::add(made);
    nn_embedding_samples::add(made);
    optimiser_samples::add(made);
    packed_matmul_samples::add(made);
    if (TORCH_VERSION_MINOR < 13) made.for_each(adapt_to_older_libtorch);
    return made;
  }();
  return table;
}

}  // namespace ahead::samples
