#include "optim/step_state.h"

#include <ATen/ops/full.h>
#include <ATen/ops/scalar_tensor.h>

#include <algorithm>

#include "optim/stepper.h"

namespace ahead::optim::detail {
namespace {

using WeakTensor = StepState::WeakTensor;

WeakTensor weak(const at::Tensor& tensor) {
  return WeakTensor(tensor.getIntrusivePtr());
}

bool is(const WeakTensor& known, const at::Tensor& tensor) {
  return known._unsafe_get_target() == tensor.unsafeGetTensorImpl();
}

bool is_same_tensor(const WeakTensor& a, const WeakTensor& b) {
  return a._unsafe_get_target() == b._unsafe_get_target();
}

at::Tensor number(double value, at::Device device) {
  // The kernels of a GPU read counts as floats.
  const at::ScalarType dtype = device.is_cpu() ? at::kDouble : at::kFloat;
  return at::full({}, value, at::TensorOptions(device).dtype(dtype));
}

}  // namespace

StepState::StepState(const std::shared_ptr<Stepper>& stepper, const Rule& rule,
                     const Bucket* buckets, size_t num_buckets)
    : stepper_(stepper), rule_(rule) {
  for (const torch::optim::OptimizerParamGroup& group : stepper->optimizer()->param_groups()) {
    Group& known = groups_.emplace_back();
    known.options = rule.options(group.options());
    for (const at::Tensor& parameter : group.params())
      known.parameters.push_back({.tensor = weak(parameter)});
  }
  for (size_t i = 0; i < num_buckets; ++i) {
    const Bucket& bucket = buckets[i];
    calls_.push_back({bucket.group, bucket.device, bucket.step});
    for (size_t k = 0; k < bucket.parameters.size(); ++k) take_part(bucket, k);
  }
  // The first one in the order of groups need not be in the first bucket.
  int64_t first = 0;
  bool is_found = false;
  for (const Group& group : groups_) {
    for (const Parameter& parameter : group.parameters) {
      if (is_found || !parameter.takes_part) continue;
      first = parameter.lead;
      is_found = true;
    }
  }
  for (Group& group : groups_) {
    for (Parameter& parameter : group.parameters) {
      if (parameter.takes_part) parameter.lead -= first;
    }
  }
  for (Call& call : calls_) call.lead -= first;
}

void StepState::take_part(const Bucket& bucket, size_t index) {
  std::vector<Parameter>& parameters = groups_[bucket.group].parameters;
  const auto found = std::find_if(parameters.begin(), parameters.end(), [&](const Parameter& each) {
    return is(each.tensor, bucket.parameters[index]);
  });
  found->takes_part = true;
  found->is_first = bucket.is_first;
  found->lead = bucket.step;
  for (const std::vector<at::Tensor>& state : bucket.state) {
    if (!state.empty()) found->state.push_back(weak(state[index]));
  }
}

bool StepState::is_same(const StepState& other) const {
  const auto same_parameter = [](const Parameter& a, const Parameter& b) {
    return is_same_tensor(a.tensor, b.tensor) && a.takes_part == b.takes_part &&
           a.is_first == b.is_first && a.lead == b.lead &&
           // What was made for the first step is gone in the next one.
           (a.is_first || std::equal(a.state.begin(), a.state.end(), b.state.begin(), b.state.end(),
                                     is_same_tensor));
  };
  const auto same_group = [&](const Group& a, const Group& b) {
    return a.options == b.options &&
           std::equal(a.parameters.begin(), a.parameters.end(), b.parameters.begin(),
                      b.parameters.end(), same_parameter);
  };
  return std::equal(groups_.begin(), groups_.end(), other.groups_.begin(), other.groups_.end(),
                    same_group);
}

const Rule::State* StepState::state_of(const at::Tensor& parameter) const {
  const auto& states = stepper_.lock()->optimizer()->state();
  const auto found = states.find(parameter.unsafeGetTensorImpl());
  return found == states.end() ? nullptr : found->second.get();
}

int64_t StepState::base() const {
  if (!rule_.uses_steps()) return 0;
  const auto& now = stepper_.lock()->optimizer()->param_groups();
  for (size_t i = 0; i < groups_.size(); ++i) {
    for (size_t k = 0; k < groups_[i].parameters.size(); ++k) {
      if (!groups_[i].parameters[k].takes_part) continue;
      const Rule::State* state = state_of(now[i].params()[k]);
      return state == nullptr ? 0 : rule_.steps(*state);
    }
  }
  return 0;
}

bool StepState::guard() const {
  const std::shared_ptr<Stepper> stepper = stepper_.lock();
  if (stepper == nullptr || stepper->optimizer() == nullptr) return false;
  const auto& now = stepper->optimizer()->param_groups();
  return std::equal(groups_.begin(), groups_.end(), now.begin(), now.end(),
                    [&](const Group& group, const auto& other) { return holds(group, other); });
}

bool StepState::holds(const Group& group, const torch::optim::OptimizerParamGroup& now) const {
  if (group.parameters.size() != now.params().size() ||
      group.options != rule_.options(now.options()))
    return false;
  for (size_t i = 0; i < group.parameters.size(); ++i) {
    if (!is(group.parameters[i].tensor, now.params()[i])) return false;
  }
  const int64_t base = this->base();
  for (size_t i = 0; i < group.parameters.size(); ++i) {
    if (!holds(group.parameters[i], now.params()[i], now.options(), base)) return false;
  }
  return true;
}

bool StepState::holds(const Parameter& parameter, const at::Tensor& now,
                      const Rule::Options& options, int64_t base) const {
  if (!parameter.takes_part || !rule_.has_state(options)) return true;
  const Rule::State* state = state_of(now);
  if (parameter.is_first || state == nullptr) return parameter.is_first && state == nullptr;
  const Rule::StateTensors tensors = rule_.tensors(*state, options);
  for (size_t i = 0; i < parameter.state.size(); ++i) {
    if (tensors[i] == nullptr || !is(parameter.state[i], *tensors[i])) return false;
  }
  return !rule_.uses_steps() || rule_.steps(*state) - base == parameter.lead;
}

std::vector<at::Tensor> StepState::inputs(size_t ahead) const {
  const auto& now = stepper_.lock()->optimizer()->param_groups();
  const int64_t base = this->base() + 1 + static_cast<int64_t>(ahead);
  std::vector<at::Tensor> all;
  all.reserve(2 * calls_.size());
  for (const Call& call : calls_) {
    all.push_back(number(now[call.group].options().get_lr(), at::kCPU));
    if (rule_.uses_steps())
      all.push_back(number(static_cast<double>(base + call.lead), call.device));
  }
  return all;
}

void StepState::commit() {
  torch::optim::Optimizer& optimizer = *stepper_.lock()->optimizer();
  for (size_t i = 0; i < groups_.size(); ++i) {
    const std::vector<at::Tensor>& now = optimizer.param_groups()[i].params();
    for (size_t k = 0; k < groups_[i].parameters.size(); ++k) {
      if (!groups_[i].parameters[k].takes_part) continue;
      const auto state = optimizer.state().find(now[k].unsafeGetTensorImpl());
      if (state != optimizer.state().end()) rule_.count(*state->second);
    }
  }
}

}  // namespace ahead::optim::detail
