#pragma once

namespace ahead::tracing {

/// While one lives, traces on this thread take tensors from outside as independent of each other,
/// even where one was computed from another.
class IndependentInputs {
 public:
  IndependentInputs();
  ~IndependentInputs();
  IndependentInputs(const IndependentInputs&) = delete;
  IndependentInputs& operator=(const IndependentInputs&) = delete;

  static bool is_active();
};

}  // namespace ahead::tracing
