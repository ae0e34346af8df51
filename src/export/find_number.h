#pragma once

#include <cstdint>

#include "trace/open_trace.h"

namespace ahead::exporting {

/// The integer that a tensor of the graph holds in a trace whose arguments are real tensors: what
/// it is made of is computed. Throws DataDependent if something random or an effect is among that.
int64_t find_number(const tracing::OpenTrace& trace, const Value& number);

}  // namespace ahead::exporting
