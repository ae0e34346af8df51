#pragma once

#include <memory>
#include <vector>

#include "optim/rule.h"
#include "optim/step_state.h"

namespace ahead::optim::detail {

/// Makes the steps of one optimizer, and knows it though it is moved.
class Stepper : public std::enable_shared_from_this<Stepper> {
 public:
  void belong_to(torch::optim::Optimizer* optimizer) { optimizer_ = optimizer; }
  torch::optim::Optimizer* optimizer() const { return optimizer_; }

  /// Updates all parameters that have a gradient. False: nothing was done, and LibTorch's own step
  /// has to, as there is something that the kernels are not made for.
  bool step(torch::optim::Optimizer& optimizer, const Rule& rule);

 private:
  bool is_usual(const Rule& rule);
  bool has_repeated_parameters();
  void collect(const Rule& rule);
  void add(const Rule& rule, size_t group, const at::Tensor& parameter);
  Bucket& bucket_for(const Bucket& like);
  void run(const Rule& rule);
  void run_recorded(const Rule& rule);
  void run_kernel(const Rule& rule, Bucket& bucket, const Numbers& numbers);
  std::shared_ptr<StepState> state_of_step(const Rule& rule);
  void release();

  torch::optim::Optimizer* optimizer_ = nullptr;
  /// Those in use come first; all keep their memory from step to step.
  std::vector<Bucket> buckets_;
  size_t num_buckets_ = 0;
  /// The parameters that were found to be there once each.
  std::vector<const c10::TensorImpl*> different_;
  at::Tensor step_on_cpu_;
  /// What observed calls took. Programs hold them weakly.
  std::vector<std::shared_ptr<StepState>> taken_;
};

}  // namespace ahead::optim::detail
