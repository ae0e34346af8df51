#pragma once

#include <ATen/core/Tensor.h>

#include "observe/tape/tape.h"

namespace ahead::observe {

/// The same memory, version and history in another tensor, so that nobody has the first one who
/// need not.
at::Tensor alias_of(const at::Tensor& tensor);

/// Whether it is one of several views that one operator made, and their base was written to since:
/// autograd throws when somebody asks for its history.
bool has_lost_history(const at::Tensor& tensor);

/// Whether become() can make one tensor another.
bool can_become(const at::Tensor& made);

/// Lets a tensor that the user holds be another one, just made, which nobody else has: with its
/// contents, history and version.
void become(const at::Tensor& held, const at::Tensor& made);

}  // namespace ahead::observe
