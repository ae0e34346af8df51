#include "ops/facts/grad_mode.h"

namespace ahead::ops {

bool depends_on_grad_mode(const Node& node) {
  static const Operator* const layer = Operator::find("aten.mkldnn_rnn_layer");
  return &node.op() == layer;
}

}  // namespace ahead::ops
