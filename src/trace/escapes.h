#pragma once

#include <vector>

#include "trace/capture.h"

namespace ahead::tracing {

/// Traced tensors that outlived their trace: what they hold, and those that user code has.
struct Escaped {
  std::vector<const Value*> values;
  std::vector<at::Tensor> tensors;
};

/// Makes tensors that the function stored outside itself (in a cache, in the state of an optimiser)
/// further results of it. False, and nothing is changed, if they are more than new memory without
/// a history, or if not all is known of what escaped.
bool add_escapes(Capture& capture, const Escaped& escaped);

/// Lets a traced tensor that user code has be the tensor that was computed for it.
void settle_escape(const at::Tensor& traced, const at::Tensor& computed);

}  // namespace ahead::tracing
