#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <memory>
#include <vector>

#include "ahead/host_state.h"
#include "optim/rule.h"

namespace ahead::optim::detail {

class Stepper;

/// What one sort of step of an optimizer takes from the host: the rates, and the counts of steps.
/// Another sort is one with other groups, parameters, state or options.
class StepState final : public HostState {
 public:
  using WeakTensor = c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;

  /// The step that these buckets are for; their counts are as they will be after it.
  StepState(const std::shared_ptr<Stepper>& stepper, const Rule& rule, const Bucket* buckets,
            size_t num_buckets);

  bool guard() const override;
  /// Of each bucket the rate and, if the kernels use it, the count of steps.
  std::vector<at::Tensor> inputs(size_t ahead) const override;
  void commit() override;

  /// Whether it is the same sort of step.
  bool is_same(const StepState& other) const;

 private:
  struct Parameter {
    WeakTensor tensor;
    bool takes_part = false;
    bool is_first = false;
    /// How many steps more it has made than the first one that takes part.
    int64_t lead = 0;
    std::vector<WeakTensor> state = {};
  };
  struct Group {
    std::vector<double> options;
    std::vector<Parameter> parameters;
  };
  struct Call {
    size_t group;
    at::Device device;
    int64_t lead;
  };

  void take_part(const Bucket& bucket, size_t index);
  bool holds(const Group& group, const torch::optim::OptimizerParamGroup& now) const;
  bool holds(const Parameter& parameter, const at::Tensor& now, const Rule::Options& options,
             int64_t base) const;
  const Rule::State* state_of(const at::Tensor& parameter) const;
  /// How many steps the first parameter that takes part has made.
  int64_t base() const;

  const std::weak_ptr<Stepper> stepper_;
  const Rule& rule_;
  std::vector<Group> groups_;
  std::vector<Call> calls_;
};

}  // namespace ahead::optim::detail
