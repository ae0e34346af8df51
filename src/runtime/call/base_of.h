#pragma once

#include "runtime/call/call_plan.h"

namespace ahead::runtime {

/// The synthetic base of arguments that share memory: the tensor that autograd knows as the base of
/// all that require grad, or of all if none does; if there is no such tensor, their whole storage.
/// Undefined where dtypes differ, or the bases of arguments that require grad.
at::Tensor base_of(const Prologue::Base& base, const std::vector<at::Tensor>& args);

/// For each argument of a base, whether autograd knows it as a view of `tensor`, or it is `tensor`.
std::vector<bool> tracked_by(const at::Tensor& tensor, const Prologue::Base& base,
                             const std::vector<at::Tensor>& args);

/// For each argument of a base, the first argument that has the same version counter.
std::vector<int32_t> version_counters(const Prologue::Base& base,
                                      const std::vector<at::Tensor>& args);

}  // namespace ahead::runtime
