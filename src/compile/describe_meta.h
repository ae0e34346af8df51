#pragma once

#include <string>

#include "trace/joint_trace.h"

namespace ahead::compiling {

/// What a trace found out about a function, as text: a line for each input and each result, with
/// what was done to it and what it shares memory with.
std::string describe_meta(const tracing::JointTrace& trace);

}  // namespace ahead::compiling
