#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <memory>
#include <utility>
#include <vector>

#include "base/ambient.h"

namespace ahead::runtime {

/// What a function's results depend on besides its arguments, so that they can be computed again:
/// the modes, of which autocast and the default dtype are put back, and the states of the random
/// number generators.
class Surroundings {
 public:
  /// The current surroundings.
  Surroundings();

  /// Puts these surroundings into effect again.
  void apply() const;

  /// Puts surroundings into effect for a scope, at whose end the previous ones are restored.
  class Scope {
   public:
    explicit Scope(const Surroundings& surroundings) { surroundings.apply(); }
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    const std::unique_ptr<const Surroundings> before_ = std::make_unique<const Surroundings>();
  };

 private:
  std::vector<std::pair<at::Generator, at::Tensor>> generators_;
  Ambient ambient_;
};

}  // namespace ahead::runtime
