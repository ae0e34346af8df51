#pragma once

#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>

#include <array>
#include <memory>
#include <vector>

namespace ahead::optim {

/// The most tensors that an optimizer keeps for one parameter.
constexpr size_t most_state_tensors = 3;

/// The numbers of one call of a kernel.
struct Numbers {
  double rate = 0;
  /// The rate as a tensor, which takes the place of the number; undefined: the number counts.
  at::Tensor rate_tensor = {};
};

/// Parameters that one call of a kernel updates: those of one group with the same device, type and
/// count of steps.
struct Bucket {
  size_t group = 0;
  at::Device device = at::kCPU;
  at::ScalarType dtype = at::kFloat;
  int64_t step = 0;       ///< with this one
  bool is_first = false;  ///< what the optimizer keeps for these was made just now
  std::vector<at::Tensor> parameters = {}, gradients = {};
  std::array<std::vector<at::Tensor>, most_state_tensors> state = {};
  std::vector<at::Tensor> steps = {};  ///< `step`, for each of them
};

/// One algorithm: what it keeps for a parameter, and the kernels of a step.
class Rule {
 public:
  using State = torch::optim::OptimizerParamState;
  using Options = torch::optim::OptimizerOptions;
  /// Of a parameter, in the order of the kernel's lists; null: there are no more.
  using StateTensors = std::array<const at::Tensor*, most_state_tensors>;

  virtual ~Rule() = default;

  /// Whether something is kept for parameters.
  virtual bool has_state(const Options& options) const;
  /// Whether that something is made in the first step, where it is missing.
  virtual bool makes_state() const { return true; }
  /// What is kept for a parameter that has not been updated yet.
  virtual std::unique_ptr<State> new_state(const at::Tensor& parameter,
                                           const Options& options) const = 0;
  /// Whether the first step with it is another one than those that follow.
  virtual bool has_first_step() const { return false; }
  virtual StateTensors tensors(const State& state, const Options& options) const = 0;
  /// How many steps a parameter has made; counts one more.
  virtual int64_t steps(const State& state) const = 0;
  virtual void count(State& state) const = 0;
  /// Whether the kernels use that count.
  virtual bool uses_steps() const { return true; }
  /// Whether the kernels are right for parameters such as this one.
  virtual bool has_kernels(const at::Tensor& parameter, const Options& options) const;
  /// All options but the rate.
  virtual std::vector<double> options(const Options& options) const = 0;
  /// Makes one step. What is written to is parameters and state only.
  virtual void run(const Bucket& bucket, const Options& options, const Numbers& numbers) const = 0;
};

/// The algorithm of LibTorch's optimizer `Base`.
template <class Base>
const Rule& rule_of();

}  // namespace ahead::optim
