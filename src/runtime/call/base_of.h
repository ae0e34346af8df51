#pragma once

#include "runtime/call/call_plan.h"

namespace ahead::runtime {

/// A tensor with the memory of all arguments of a group: what autograd knows as the base of all
/// that have a gradient, or of all if none has; otherwise their whole storage. Undefined if there
/// is none.
at::Tensor base_of(const Prologue::Base& base, const std::vector<at::Tensor>& args);

/// For each argument of a group whether autograd knows it as a view of `tensor`, or as it.
std::vector<bool> tracked_by(const at::Tensor& tensor, const Prologue::Base& base,
                             const std::vector<at::Tensor>& args);

/// For each argument of a group the first one that has the same version counter.
std::vector<int32_t> version_counters(const Prologue::Base& base,
                                      const std::vector<at::Tensor>& args);

}  // namespace ahead::runtime
