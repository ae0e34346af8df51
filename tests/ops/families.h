#pragma once

#include "ops/sample.h"

/// One function per family of operators, each in its own file and namespace, so that several files
/// can be compiled at a time; sample_table.cpp calls them all.
namespace ahead::samples {

namespace unary_samples {
void add(SampleTable& table);
}
namespace binary_samples {
void add(SampleTable& table);
}
namespace pointwise_samples {
void add(SampleTable& table);
}
namespace reduction_samples {
void add(SampleTable& table);
}
namespace ordering_samples {
void add(SampleTable& table);
}
namespace view_samples {
void add(SampleTable& table);
}
namespace in_place_samples {
void add(SampleTable& table);
}
namespace joining_samples {
void add(SampleTable& table);
}
namespace matmul_samples {
void add(SampleTable& table);
}
namespace indexing_samples {
void add(SampleTable& table);
}
namespace factory_samples {
void add(SampleTable& table);
}
namespace complex_samples {
void add(SampleTable& table);
}
namespace random_samples {
void add(SampleTable& table);
}
namespace foreach_samples {
void add(SampleTable& table);
}
namespace linalg_samples {
void add(SampleTable& table);
}
namespace binning_samples {
void add(SampleTable& table);
}
namespace fake_quantize_samples {
void add(SampleTable& table);
}
namespace kernel_samples {
void add(SampleTable& table);
}
namespace reading_samples {
void add(SampleTable& table);
}
namespace nn_padding_samples {
void add(SampleTable& table);
}
namespace nn_rnn_samples {
void add(SampleTable& table);
}
namespace nn_layers_samples {
void add(SampleTable& table);
}
namespace nn_upsampling_samples {
void add(SampleTable& table);
}
namespace nn_loss_samples {
void add(SampleTable& table);
}
namespace nn_convolution_samples {
void add(SampleTable& table);
}
namespace nn_normalisation_samples {
void add(SampleTable& table);
}
namespace nn_embedding_samples {
void add(SampleTable& table);
}
namespace optimiser_samples {
void add(SampleTable& table);
}
namespace packed_matmul_samples {
void add(SampleTable& table);
}

}  // namespace ahead::samples
