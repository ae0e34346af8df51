#pragma once

#include <c10/util/ArrayRef.h>

#include "trace/sizes/symbolic_call.h"

namespace ahead::tracing {

/// Rules of operators whose results are views of their first argument.
c10::ArrayRef<SymbolicRow> symbolic_views();

}  // namespace ahead::tracing
