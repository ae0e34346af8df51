#pragma once

#include "trace/tracer.h"

namespace ahead::tracing {

/// Adds a finished trace to trace_stats().
void count_trace(const Tracer& tracer, double seconds);

}  // namespace ahead::tracing
