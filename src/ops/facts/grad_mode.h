#pragma once

#include "ahead/graph.h"

namespace ahead::ops {

/// mkldnn_rnn_layer makes the workspace for its gradient only in grad mode.
bool depends_on_grad_mode(const Node& node);

}  // namespace ahead::ops
