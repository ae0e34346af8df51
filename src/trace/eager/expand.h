#pragma once

#include <torch/library.h>

#include "trace/eager/departures.h"
#include "trace/outside.h"

namespace ahead::tracing {

/// Replaces LibTorch's functionalisation of `expand` while tracing, which rounds what is written
/// through it: where nothing is made larger, an expand is a `view`, and is recorded as one.
void register_expand(torch::Library& functionalize);

/// Whether a traced tensor is a view through an `expand`.
bool is_expanded(const at::Tensor& traced);

/// The same memory as a traced view, as a view that as_strided makes of the base that autograd
/// knows; undefined if it knows none.
at::Tensor view_by_layout(Outside& outside, const at::Tensor& traced);

/// What is done otherwise for `expand`, and for writes through it.
Departures expand_departures();

}  // namespace ahead::tracing
