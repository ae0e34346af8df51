#pragma once

#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <memory>
#include <utility>

#include "ahead/export.h"

/// Optimizers of `torch::optim` whose steps run LibTorch's fused kernels, and may be part of a
/// compiled function.
namespace ahead::optim {

namespace detail {

class Stepper;

/// What finds the way from an optimizer to its steps, and back though the optimizer is moved.
class AHEAD_API StepperHandle {
 public:
  StepperHandle();
  ~StepperHandle();
  StepperHandle(StepperHandle&& other) noexcept;
  StepperHandle& operator=(StepperHandle&& other) noexcept;

  /// Never null but where it was moved from.
  Stepper* get() const { return stepper_.get(); }
  /// From now on it is this optimizer's.
  void belong_to(torch::optim::Optimizer* optimizer);

 private:
  std::shared_ptr<Stepper> stepper_;
};

}  // namespace detail

/// One of LibTorch's optimizers with another `step`. Options, groups, state and archives are those
/// of LibTorch, so that either kind loads what the other one saved.
///
/// A step gives what LibTorch's gives, to the bit where its kernels are the same (RMSprop without
/// momentum) and within 4 eps of max(|p|, lr) where they are fused. What the kernels are not made
/// for (complex or sparse tensors, tensors with gaps) takes LibTorch's own step. In a compiled
/// function the rate and the count of steps are read anew in each call.
template <class Base>
class Fused : public Base {
 public:
  using Base::Base;
  Fused(Fused&& other) noexcept
      : Base(std::move(static_cast<Base&>(other))), stepper_(std::move(other.stepper_)) {
    stepper_.belong_to(this);
  }
  Fused& operator=(Fused&& other) noexcept {
    Base::operator=(std::move(static_cast<Base&>(other)));
    stepper_ = std::move(other.stepper_);
    stepper_.belong_to(this);
    return *this;
  }
  ~Fused() override = default;

  /// Calls the closure, if there is one, then updates all parameters that have a gradient.
  at::Tensor step(torch::optim::Optimizer::LossClosure closure = nullptr) override;

 private:
  detail::StepperHandle stepper_;
};

extern template class AHEAD_API Fused<torch::optim::SGD>;
extern template class AHEAD_API Fused<torch::optim::Adam>;
extern template class AHEAD_API Fused<torch::optim::AdamW>;
extern template class AHEAD_API Fused<torch::optim::RMSprop>;
extern template class AHEAD_API Fused<torch::optim::Adagrad>;

using SGD = Fused<torch::optim::SGD>;
using Adam = Fused<torch::optim::Adam>;
using AdamW = Fused<torch::optim::AdamW>;
using RMSprop = Fused<torch::optim::RMSprop>;
using Adagrad = Fused<torch::optim::Adagrad>;

using torch::optim::AdagradOptions;
using torch::optim::AdamOptions;
using torch::optim::AdamWOptions;
using torch::optim::RMSpropOptions;
using torch::optim::SGDOptions;

}  // namespace ahead::optim
