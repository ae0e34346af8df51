#pragma once

#include "ops/sample.h"

/// One function per family of operators, each in its own file; sample_table.cpp calls them all.
namespace ahead::samples {

void add_unary_samples(SampleTable& table);
void add_binary_samples(SampleTable& table);
void add_pointwise_samples(SampleTable& table);
void add_reduction_samples(SampleTable& table);
void add_ordering_samples(SampleTable& table);
void add_view_samples(SampleTable& table);
void add_in_place_samples(SampleTable& table);
void add_joining_samples(SampleTable& table);
void add_matmul_samples(SampleTable& table);
void add_indexing_samples(SampleTable& table);
void add_factory_samples(SampleTable& table);
void add_complex_samples(SampleTable& table);
void add_random_samples(SampleTable& table);
void add_foreach_samples(SampleTable& table);
void add_linalg_samples(SampleTable& table);
void add_binning_samples(SampleTable& table);
void add_fake_quantize_samples(SampleTable& table);
void add_kernel_samples(SampleTable& table);
void add_reading_samples(SampleTable& table);
void add_nn_padding_samples(SampleTable& table);
void add_nn_rnn_samples(SampleTable& table);
void add_nn_layers_samples(SampleTable& table);
void add_nn_upsampling_samples(SampleTable& table);
void add_nn_loss_samples(SampleTable& table);
void add_nn_convolution_samples(SampleTable& table);
void add_nn_normalisation_samples(SampleTable& table);
void add_nn_embedding_samples(SampleTable& table);
void add_optimiser_samples(SampleTable& table);
void add_packed_matmul_samples(SampleTable& table);

}  // namespace ahead::samples
