#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <memory>
#include <utility>
#include <vector>

#include "base/autocast.h"

namespace ahead::runtime {

/// What decides besides arguments what a function computes: the states of the random number
/// generators, autocast, the default dtype.
class Surroundings {
 public:
  /// As they are now.
  Surroundings();

  /// Puts them into effect again.
  void apply() const;

  /// Puts surroundings into effect, and those that were there back at its end.
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
