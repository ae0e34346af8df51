#pragma once

#include <torch/csrc/autograd/function_hook.h>

#include <functional>
#include <memory>
#include <utility>
#include <vector>

namespace ahead::test {

/// A hook on what flows into a node, as a function.
struct PreHook : torch::autograd::FunctionPreHook {
  using Function =
      std::function<torch::autograd::variable_list(const torch::autograd::variable_list&)>;
  explicit PreHook(Function f) : f(std::move(f)) {}
  torch::autograd::variable_list operator()(const torch::autograd::variable_list& grads) override {
    return f(grads);
  }
  Function f;
};

/// A hook on what a node returned and what it was given, as a function.
struct PostHook : torch::autograd::FunctionPostHook {
  using Function = std::function<torch::autograd::variable_list(
      const torch::autograd::variable_list& outputs, const torch::autograd::variable_list& inputs)>;
  explicit PostHook(Function f) : f(std::move(f)) {}
  torch::autograd::variable_list operator()(const torch::autograd::variable_list& outputs,
                                            const torch::autograd::variable_list& inputs) override {
    return f(outputs, inputs);
  }
  Function f;
};

/// A hook on a leaf whose gradient was accumulated, as a function.
struct AccumulatedHook : torch::autograd::PostAccumulateGradHook {
  using Function = std::function<void(const at::Tensor&)>;
  explicit AccumulatedHook(Function f) : f(std::move(f)) {}
  void operator()(const at::Tensor& tensor) override { f(tensor); }
  Function f;
};

/// Each gradient that is defined, times the factor.
inline torch::autograd::variable_list scaled(const torch::autograd::variable_list& grads,
                                             double factor) {
  torch::autograd::variable_list results;
  for (const at::Tensor& grad : grads) results.push_back(grad.defined() ? grad * factor : grad);
  return results;
}

/// What happened, in order, as a tensor that can be compared with eager's.
class EventLog {
 public:
  void add(int64_t event) const { events_->push_back(event); }
  at::Tensor tensor() const { return at::tensor(*events_, at::kLong); }

 private:
  std::shared_ptr<std::vector<int64_t>> events_ = std::make_shared<std::vector<int64_t>>();
};

}  // namespace ahead::test
