#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <memory>
#include <utility>
#include <vector>

#include "base/ambient.h"

namespace ahead::runtime {

/// What decides besides arguments what a function computes, so that it can be computed again: the
/// modes, of which autocast and the default dtype are put back, and the states of the random number
/// generators.
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
  Ambient ambient_;
};

}  // namespace ahead::runtime
