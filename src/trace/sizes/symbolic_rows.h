#pragma once

#include <c10/util/ArrayRef.h>

#include "trace/sizes/symbolic_call.h"

namespace ahead::tracing {

/// Rules of operators whose results lie row by row in memory of their own, whatever the operands
/// look like, or as an argument says.
c10::ArrayRef<SymbolicRow> symbolic_rows();

}  // namespace ahead::tracing
