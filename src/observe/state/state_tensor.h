#pragma once

#include <ATen/core/Tensor.h>

#include "observe/tape/tape.h"

namespace ahead::observe {

/// Another tensor with the same memory, version counter and history, for those who need not own the
/// tensor itself.
at::Tensor alias_of(const at::Tensor& tensor);

/// Whether it is a multi-output view, or another one that autograd lets nobody write to, and its
/// base was written to since: autograd throws when it is asked for its grad_fn.
bool has_lost_history(const at::Tensor& tensor);

/// Whether become() can put this tensor in the place of another.
bool can_become(const at::Tensor& made);

/// Lets a tensor that the user holds become another one that was just made and that nobody else
/// holds: with its memory, history and version counter.
void become(const at::Tensor& held, const at::Tensor& made);

}  // namespace ahead::observe
