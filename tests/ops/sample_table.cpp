#include "ops/families.h"

namespace ahead::samples {

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
    return made;
  }();
  return table;
}

}  // namespace ahead::samples
