#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <memory>
#include <utility>
#include <vector>

#include "base/autocast.h"

namespace ahead::runtime {

/// What a function's results depend on besides its arguments: the states of the random number
/// generators, autocast, the default dtype.
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
  AutocastState autocast_;
  at::ScalarType default_dtype_;
};

}  // namespace ahead::runtime
