#pragma once

#include "runtime/call_plan.h"

namespace ahead::runtime {

/// The tensor that all arguments of a group are views of: the one autograd knows of, or their whole
/// storage if autograd knows of none. Undefined if they have no common base.
at::Tensor base_of(const CallPlan::Base& base, const std::vector<at::Tensor>& args);

/// Whether autograd knows the common base of a group that has one.
bool is_tracked(const CallPlan::Base& base, const std::vector<at::Tensor>& args);

/// For each argument of a group the first one that has the same version counter.
std::vector<int32_t> version_counters(const CallPlan::Base& base,
                                      const std::vector<at::Tensor>& args);

}  // namespace ahead::runtime
