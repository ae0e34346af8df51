#pragma once

#include <c10/util/Exception.h>

namespace ahead::tracing {

/// Throws what an error of LibTorch's means for a trace, if it means anything special there.
void explain(const c10::Error& error);

}  // namespace ahead::tracing
