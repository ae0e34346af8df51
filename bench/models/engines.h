#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "models/speed_models.h"

/// One model that one engine runs in one way, step by step.
class Engine {
 public:
  virtual ~Engine() = default;
  /// Runs one step and returns its loss.
  virtual at::Tensor step() = 0;
  /// How many calls ran from graphs; none where there are none.
  virtual uint64_t hits() const { return 0; }
};

/// An engine of that name ("eager", "interpreter", "native") for a workload. Ways are "step", which
/// leaves gradients behind, "update", which has a step of AdamW as well, and "inside", which takes
/// the gradients inside of the function.
std::unique_ptr<Engine> make_engine(const std::string& name, const models::Workload& workload,
                                    const std::string& way);
