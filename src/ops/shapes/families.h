#pragma once

#include "ops/shape_rules.h"

/// One function per family of operators; each adds that family's rules.
namespace ahead::ops::shapes {

void add_activation_rules(ShapeRules& rules);
void add_arithmetic_rules(ShapeRules& rules);
void add_attention_rules(ShapeRules& rules);
void add_convolution_rules(ShapeRules& rules);
void add_distance_rules(ShapeRules& rules);
void add_embedding_rules(ShapeRules& rules);
void add_factory_rules(ShapeRules& rules);
void add_fake_quantize_rules(ShapeRules& rules);
void add_fft_rules(ShapeRules& rules);
void add_histogram_rules(ShapeRules& rules);
void add_indexing_rules(ShapeRules& rules);
void add_linalg_rules(ShapeRules& rules);
void add_loss_rules(ShapeRules& rules);
void add_matmul_rules(ShapeRules& rules);
void add_normalisation_rules(ShapeRules& rules);
void add_optimiser_rules(ShapeRules& rules);
void add_padding_rules(ShapeRules& rules);
void add_pooling_rules(ShapeRules& rules);
void add_random_rules(ShapeRules& rules);
void add_rearranging_rules(ShapeRules& rules);
void add_recurrent_rules(ShapeRules& rules);
void add_reduction_rules(ShapeRules& rules);
void add_sampling_rules(ShapeRules& rules);
void add_view_rules(ShapeRules& rules);

}  // namespace ahead::ops::shapes
