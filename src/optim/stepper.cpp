#include "optim/stepper.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <c10/util/ScopeExit.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <unordered_set>

#include "ahead/optim.h"
#include "observe/recorder/recorder.h"
#include "trace/tracer.h"

namespace ahead::optim {
namespace detail {
namespace {

/// So many sorts of steps of one optimizer can be in programs.
constexpr size_t most_taken = 16;

bool has_kernels(const at::Tensor& tensor) {
  const at::ScalarType dtype = tensor.scalar_type();
  return tensor.layout() == at::kStrided && (tensor.is_cpu() || tensor.is_cuda()) &&
         (dtype == at::kFloat || dtype == at::kDouble || dtype == at::kHalf ||
          dtype == at::kBFloat16) &&
         tensor.is_non_overlapping_and_dense();
}

bool lies_like(const at::Tensor& a, const at::Tensor& b) {
  return a.sizes() == b.sizes() && (a.numel() == 0 || a.strides() == b.strides());
}

bool is_like(const at::Tensor& a, const at::Tensor& b) {
  return a.defined() && a.layout() == at::kStrided && a.scalar_type() == b.scalar_type() &&
         a.device() == b.device() && a.sizes() == b.sizes();
}

void bump_versions(const std::vector<at::Tensor>& tensors) {
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.is_inference()) torch::autograd::impl::bump_version(tensor);
  }
}

}  // namespace

bool Stepper::step(torch::optim::Optimizer& optimizer, const Rule& rule) {
  optimizer_ = &optimizer;
  if (tracing::Tracer::current() != nullptr || !is_usual(rule)) return false;
  const auto finally = c10::make_scope_exit([this] { release(); });
  collect(rule);
  if (observe::Recorder::current() != nullptr) {
    run_recorded(rule);
  } else {
    run(rule);
  }
  return true;
}

/// Whether the kernels can do all of the next step.
bool Stepper::is_usual(const Rule& rule) {
  if (has_repeated_parameters()) return false;
  const auto& states = optimizer_->state();
  for (const torch::optim::OptimizerParamGroup& group : optimizer_->param_groups()) {
    const Rule::Options& options = group.options();
    for (const at::Tensor& parameter : group.params()) {
      const at::Tensor& gradient = parameter.grad();
      if (!gradient.defined()) continue;
      if (!has_kernels(parameter) || !rule.has_kernels(parameter, options) ||
          !is_like(gradient, parameter))
        return false;
      if (!rule.has_state(options)) continue;
      const auto state = states.find(parameter.unsafeGetTensorImpl());
      if (state == states.end()) {
        if (!rule.makes_state()) return false;
        continue;
      }
      for (const at::Tensor* tensor : rule.tensors(*state->second, options)) {
        if (tensor == nullptr) break;
        if (!is_like(*tensor, parameter) || !lies_like(*tensor, parameter)) return false;
      }
    }
  }
  return true;
}

/// A parameter that is there twice is updated twice, one time after the other.
bool Stepper::has_repeated_parameters() {
  size_t count = 0;
  bool is_known = true;
  for (const torch::optim::OptimizerParamGroup& group : optimizer_->param_groups()) {
    for (const at::Tensor& parameter : group.params()) {
      is_known &= count < different_.size() && different_[count] == parameter.unsafeGetTensorImpl();
      ++count;
    }
  }
  if (is_known && count == different_.size()) return false;
  different_.clear();
  for (const torch::optim::OptimizerParamGroup& group : optimizer_->param_groups()) {
    for (const at::Tensor& parameter : group.params())
      different_.push_back(parameter.unsafeGetTensorImpl());
  }
  const std::unordered_set<const c10::TensorImpl*> once(different_.begin(), different_.end());
  if (once.size() == different_.size()) return false;
  different_.clear();
  return true;
}

void Stepper::collect(const Rule& rule) {
  for (size_t i = 0; i < optimizer_->param_groups().size(); ++i) {
    for (const at::Tensor& parameter : optimizer_->param_groups()[i].params()) {
      if (parameter.grad().defined()) add(rule, i, parameter);
    }
  }
}

Bucket& Stepper::bucket_for(const Bucket& like) {
  for (size_t i = 0; i < num_buckets_; ++i) {
    Bucket& bucket = buckets_[i];
    if (bucket.group == like.group && bucket.device == like.device && bucket.dtype == like.dtype &&
        bucket.step == like.step && bucket.is_first == like.is_first)
      return bucket;
  }
  if (num_buckets_ == buckets_.size()) buckets_.emplace_back();
  Bucket& bucket = buckets_[num_buckets_++];
  bucket.group = like.group;
  bucket.device = like.device;
  bucket.dtype = like.dtype;
  bucket.step = like.step;
  bucket.is_first = like.is_first;
  return bucket;
}

void Stepper::add(const Rule& rule, size_t group, const at::Tensor& parameter) {
  const Rule::Options& options = optimizer_->param_groups()[group].options();
  Bucket like{group, parameter.device(), parameter.scalar_type()};
  Rule::StateTensors tensors{};
  if (rule.has_state(options)) {
    auto& states = optimizer_->state();
    auto state = states.find(parameter.unsafeGetTensorImpl());
    if (state == states.end()) {
      // It is no part of what the step computes: it is there in all others.
      const observe::RecordingPause pause;
      like.is_first = rule.has_first_step();
      states[parameter.unsafeGetTensorImpl()] = rule.new_state(parameter, options);
      state = states.find(parameter.unsafeGetTensorImpl());
    }
    if (rule.uses_steps()) like.step = rule.steps(*state->second) + 1;
    tensors = rule.tensors(*state->second, options);
  }
  Bucket& bucket = bucket_for(like);
  bucket.parameters.push_back(parameter);
  const at::Tensor& gradient = parameter.grad();
  bucket.gradients.push_back(
      lies_like(gradient, parameter)
          ? gradient
          : at::empty_like(parameter, at::MemoryFormat::Preserve).copy_(gradient));
  for (size_t i = 0; i < tensors.size() && tensors[i] != nullptr; ++i)
    bucket.state[i].push_back(*tensors[i]);
}

void Stepper::run_kernel(const Rule& rule, Bucket& bucket, const Numbers& numbers) {
  rule.run(bucket, optimizer_->param_groups()[bucket.group].options(), numbers);
}

void Stepper::run(const Rule& rule) {
  for (size_t i = 0; i < num_buckets_; ++i) {
    for (const at::Tensor& parameter : buckets_[i].parameters) {
      const auto state = optimizer_->state().find(parameter.unsafeGetTensorImpl());
      if (state != optimizer_->state().end()) rule.count(*state->second);
    }
  }
  // The kernels' schemas say that they write to gradients, which they do not.
  const at::AutoDispatchBelowADInplaceOrView below;
  for (size_t i = 0; i < num_buckets_; ++i) {
    Bucket& bucket = buckets_[i];
    if (rule.uses_steps()) {
      at::Tensor step = step_on_cpu_;
      if (!bucket.device.is_cpu()) {
        step = at::full({}, bucket.step, at::TensorOptions(bucket.device).dtype(at::kFloat));
      } else {
        if (!step.defined()) step = step_on_cpu_ = at::empty({}, at::kDouble);
        *step.mutable_data_ptr<double>() = static_cast<double>(bucket.step);
      }
      bucket.steps.assign(bucket.parameters.size(), step);
    }
    run_kernel(rule, bucket, {optimizer_->param_groups()[bucket.group].options().get_lr()});
    bump_versions(bucket.parameters);
    for (const std::vector<at::Tensor>& state : bucket.state) bump_versions(state);
  }
}

void Stepper::run_recorded(const Rule& rule) {
  for (const torch::optim::OptimizerParamGroup& group : optimizer_->param_groups()) {
    for (const at::Tensor& parameter : group.params())
      observe::Recorder::current()->ask_for_grad(parameter);
  }
  const std::vector<at::Tensor> numbers = take_next(state_of_step(rule));
  size_t next = 0;
  for (size_t i = 0; i < num_buckets_; ++i) {
    const at::Tensor& rate = numbers[next++];
    if (rule.uses_steps()) buckets_[i].steps.assign(buckets_[i].parameters.size(), numbers[next++]);
    run_kernel(rule, buckets_[i], {.rate_tensor = rate});
  }
}

/// One object for all steps of a sort, so that programs can be told apart by it.
std::shared_ptr<StepState> Stepper::state_of_step(const Rule& rule) {
  auto state = std::make_shared<StepState>(shared_from_this(), rule, buckets_.data(), num_buckets_);
  for (const std::shared_ptr<StepState>& known : taken_) {
    if (known->is_same(*state)) return known;
  }
  if (taken_.size() == most_taken) taken_.erase(taken_.begin());
  return taken_.emplace_back(std::move(state));
}

/// Nothing lives longer than with LibTorch's own step.
void Stepper::release() {
  for (size_t i = 0; i < num_buckets_; ++i) {
    Bucket& bucket = buckets_[i];
    bucket.parameters.clear();
    bucket.gradients.clear();
    for (std::vector<at::Tensor>& state : bucket.state) state.clear();
    bucket.steps.clear();
  }
  num_buckets_ = 0;
}

StepperHandle::StepperHandle() : stepper_(std::make_shared<Stepper>()) {}
StepperHandle::~StepperHandle() = default;
StepperHandle::StepperHandle(StepperHandle&& other) noexcept = default;
StepperHandle& StepperHandle::operator=(StepperHandle&& other) noexcept = default;

void StepperHandle::belong_to(torch::optim::Optimizer* optimizer) {
  if (stepper_ != nullptr) stepper_->belong_to(optimizer);
}

}  // namespace detail

template <class Base>
at::Tensor Fused<Base>::step(torch::optim::Optimizer::LossClosure closure) {
  const at::NoGradGuard no_grad;
  at::Tensor loss;
  if (closure != nullptr) {
    const at::AutoGradMode with_grad(true);
    loss = closure();
  }
  detail::Stepper* stepper = stepper_.get();
  if (stepper == nullptr || !stepper->step(*this, rule_of<Base>())) Base::step();
  return loss;
}

template class Fused<torch::optim::SGD>;
template class Fused<torch::optim::Adam>;
template class Fused<torch::optim::AdamW>;
template class Fused<torch::optim::RMSprop>;
template class Fused<torch::optim::Adagrad>;

}  // namespace ahead::optim
