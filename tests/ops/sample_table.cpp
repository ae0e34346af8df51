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
    add_unary_samples(made);
    add_binary_samples(made);
    add_pointwise_samples(made);
    add_reduction_samples(made);
    add_ordering_samples(made);
    add_view_samples(made);
    add_in_place_samples(made);
    add_joining_samples(made);
    add_matmul_samples(made);
    add_indexing_samples(made);
    add_factory_samples(made);
    add_complex_samples(made);
    add_random_samples(made);
    add_foreach_samples(made);
    add_linalg_samples(made);
    add_binning_samples(made);
    add_fake_quantize_samples(made);
    add_kernel_samples(made);
    add_reading_samples(made);
    add_nn_padding_samples(made);
    add_nn_rnn_samples(made);
    add_nn_layers_samples(made);
    add_nn_upsampling_samples(made);
    add_nn_loss_samples(made);
    add_nn_convolution_samples(made);
    add_nn_normalisation_samples(made);
    add_nn_embedding_samples(made);
    add_optimiser_samples(made);
    add_packed_matmul_samples(made);
    if (TORCH_VERSION_MINOR < 13) made.for_each(adapt_to_older_libtorch);
    return made;
  }();
  return table;
}

}  // namespace ahead::samples
