#pragma once

#include <ATen/core/boxing/KernelFunction.h>
#include <c10/core/CompileTimeFunctionPointer.h>
#include <c10/core/Device.h>

#include <string>
#include <unordered_map>

#include "ahead/graph.h"
#include "ops/layout_rules.h"

/// Shape rules: what an operator's results look like, for operators without a C++ Meta kernel or
/// whose Meta kernel differs from the real one. A rule has the operator's own C++ signature; it is
/// called with meta tensors and returns meta tensors. No rule reads or writes data. A rule that
/// does not cover some arguments throws c10::NotImplementedError, and the real kernel is asked.
namespace ahead::ops {

/// All rules, by operator name as in the schema with the overload (`relu`, `sort.stable`).
class ShapeRules {
 public:
  /// Adds the rule for an `aten` operator: `rules.add("relu", TORCH_FN(relu))`.
  template <class Function>
  void add(const char* name, Function function) {
    kernels_.emplace(name, c10::KernelFunction::makeFromUnboxedFunction(function));
  }
  /// Adds what follows for an `aten` operator where sizes change; see ops/layout_rules.h.
  void add_layout(const char* name, LayoutRule rule) { layouts_.emplace(name, rule); }
  /// Says of an operator that only its kernel knows what its results look like.
  void add_unknowable(const char* name);
  /// Null if there is no rule.
  const c10::KernelFunction* find(const std::string& name) const;
  const std::unordered_map<std::string, c10::KernelFunction>& all() const { return kernels_; }
  const std::unordered_map<std::string, LayoutRule>& layouts() const { return layouts_; }

 private:
  std::unordered_map<std::string, c10::KernelFunction> kernels_;
  std::unordered_map<std::string, LayoutRule> layouts_;
};

/// Every rule there is.
const ShapeRules& shape_rules();

/// The device the traced operator would really run on; rules see meta tensors only. Read by the few
/// rules whose results depend on it.
at::Device rule_device();

/// Sets rule_device() on this thread for a scope.
class RuleDeviceGuard {
 public:
  explicit RuleDeviceGuard(at::Device device);
  ~RuleDeviceGuard();
  RuleDeviceGuard(const RuleDeviceGuard&) = delete;
  RuleDeviceGuard& operator=(const RuleDeviceGuard&) = delete;

 private:
  at::Device previous_;
};

}  // namespace ahead::ops
