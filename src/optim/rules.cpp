#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_addcdiv.h>
#include <ATen/ops/_foreach_addcmul.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_sqrt.h>
#include <ATen/ops/_fused_adagrad.h>
#include <ATen/ops/_fused_adam.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/_fused_sgd.h>
#include <ATen/ops/zeros_like.h>

#include "ahead/optim.h"
#include "optim/rule.h"

namespace ahead::optim {

bool Rule::has_state(const Options&) const {
  return true;
}

bool Rule::has_kernels(const at::Tensor&, const Options&) const {
  return true;
}

namespace {

/// LibTorch's fused SGD mixes up elements of half precision on the CPU.
bool is_right_with_sgd(const at::Tensor& parameter) {
  return !parameter.is_cpu() || parameter.scalar_type() == at::kFloat ||
         parameter.scalar_type() == at::kDouble;
}

at::Tensor zeros_for(const at::Tensor& parameter) {
  return at::zeros_like(parameter, at::MemoryFormat::Preserve);
}

/// Calls a kernel with the rate as a tensor or as a number: the overloads differ in nothing else.
template <class Call>
void with_rate(const Numbers& numbers, const Call& call) {
  if (numbers.rate_tensor.defined()) {
    call(numbers.rate_tensor);
  } else {
    call(numbers.rate);
  }
}

/// p -= rate * update
void descend(const Bucket& bucket, const std::vector<at::Tensor>& updates, const Numbers& numbers) {
  with_rate(numbers, [&](const auto& rate) {
    at::_fused_sgd_(bucket.parameters, updates, {}, /*weight_decay=*/0, /*momentum=*/0, rate,
                    /*dampening=*/0, /*nesterov=*/false, /*maximize=*/false,
                    /*is_first_step=*/false);
  });
}

class SgdRule final : public Rule {
  using Own = torch::optim::SGDOptions;
  using Kept = torch::optim::SGDParamState;

 public:
  bool has_state(const Options& options) const override {
    return static_cast<const Own&>(options).momentum() != 0;
  }
  bool has_first_step() const override { return true; }
  bool has_kernels(const at::Tensor& parameter, const Options&) const override {
    return is_right_with_sgd(parameter);
  }
  bool uses_steps() const override { return false; }
  std::unique_ptr<State> new_state(const at::Tensor& parameter, const Options&) const override {
    auto state = std::make_unique<Kept>();
    // Filled by the first step, should it not throw.
    state->momentum_buffer(zeros_for(parameter));
    return state;
  }
  StateTensors tensors(const State& state, const Options&) const override {
    return {&static_cast<const Kept&>(state).momentum_buffer()};
  }
  int64_t steps(const State&) const override { return 0; }
  void count(State&) const override {}
  std::vector<double> options(const Options& options) const override {
    const auto& own = static_cast<const Own&>(options);
    return {own.momentum(), own.dampening(), own.weight_decay(), double(own.nesterov())};
  }
  void run(const Bucket& bucket, const Options& options, const Numbers& numbers) const override {
    const auto& own = static_cast<const Own&>(options);
    with_rate(numbers, [&](const auto& rate) {
      at::_fused_sgd_(bucket.parameters, bucket.gradients, bucket.state[0], own.weight_decay(),
                      own.momentum(), rate, own.dampening(), own.nesterov(), /*maximize=*/false,
                      bucket.is_first);
    });
  }
};

/// One whose state counts the steps.
template <class Kept>
class CountingRule : public Rule {
 public:
  int64_t steps(const State& state) const final { return static_cast<const Kept&>(state).step(); }
  void count(State& state) const final {
    auto& kept = static_cast<Kept&>(state);
    kept.step(kept.step() + 1);
  }
};

/// Adam and AdamW, which keep the same and differ in how weights decay.
template <class Own, class Kept, bool is_decoupled>
class AdamRule final : public CountingRule<Kept> {
  using typename Rule::Options;
  using typename Rule::State;
  using typename Rule::StateTensors;

 public:
  std::unique_ptr<State> new_state(const at::Tensor& parameter,
                                   const Options& options) const override {
    auto state = std::make_unique<Kept>();
    state->step(0);
    state->exp_avg(zeros_for(parameter));
    state->exp_avg_sq(zeros_for(parameter));
    if (static_cast<const Own&>(options).amsgrad()) state->max_exp_avg_sq(zeros_for(parameter));
    return state;
  }
  StateTensors tensors(const State& state, const Options& options) const override {
    const auto& kept = static_cast<const Kept&>(state);
    const bool has_maximum = static_cast<const Own&>(options).amsgrad();
    return {&kept.exp_avg(), &kept.exp_avg_sq(), has_maximum ? &kept.max_exp_avg_sq() : nullptr};
  }
  std::vector<double> options(const Options& options) const override {
    const auto& own = static_cast<const Own&>(options);
    const auto [beta1, beta2] = own.betas();
    return {beta1, beta2, own.eps(), own.weight_decay(), double(own.amsgrad())};
  }
  void run(const Bucket& bucket, const Options& options, const Numbers& numbers) const override {
    const auto& own = static_cast<const Own&>(options);
    const auto& [averages, squares, maxima] = bucket.state;
    const double beta1 = std::get<0>(own.betas()), beta2 = std::get<1>(own.betas());
    with_rate(numbers,
              [&, &averages = averages, &squares = squares, &maxima = maxima](const auto& rate) {
                if constexpr (is_decoupled) {
                  at::_fused_adamw_(bucket.parameters, bucket.gradients, averages, squares, maxima,
                                    bucket.steps, rate, beta1, beta2, own.weight_decay(), own.eps(),
                                    own.amsgrad(), /*maximize=*/false);
                } else {
                  at::_fused_adam_(bucket.parameters, bucket.gradients, averages, squares, maxima,
                                   bucket.steps, rate, beta1, beta2, own.weight_decay(), own.eps(),
                                   own.amsgrad(), /*maximize=*/false);
                }
              });
  }
};

/// LibTorch makes what it keeps in the constructor.
class AdagradRule final : public CountingRule<torch::optim::AdagradParamState> {
  using Own = torch::optim::AdagradOptions;
  using Kept = torch::optim::AdagradParamState;

 public:
  bool makes_state() const override { return false; }
  std::unique_ptr<State> new_state(const at::Tensor&, const Options&) const override {
    return nullptr;
  }
  StateTensors tensors(const State& state, const Options&) const override {
    return {&static_cast<const Kept&>(state).sum()};
  }
  std::vector<double> options(const Options& options) const override {
    const auto& own = static_cast<const Own&>(options);
    return {own.lr_decay(), own.weight_decay(), own.eps()};
  }
  void run(const Bucket& bucket, const Options& options, const Numbers& numbers) const override {
    const auto& own = static_cast<const Own&>(options);
    with_rate(numbers, [&](const auto& rate) {
      at::_fused_adagrad_(bucket.parameters, bucket.gradients, bucket.state[0], bucket.steps, rate,
                          own.lr_decay(), own.weight_decay(), own.eps(), /*maximize=*/false);
    });
  }
};

/// LibTorch has no fused kernel for it.
class RmspropRule final : public CountingRule<torch::optim::RMSpropParamState> {
  using Own = torch::optim::RMSpropOptions;
  using Kept = torch::optim::RMSpropParamState;
  using Tensors = std::vector<at::Tensor>;

 public:
  bool has_kernels(const at::Tensor& parameter, const Options& options) const override {
    return static_cast<const Own&>(options).momentum() <= 0 || is_right_with_sgd(parameter);
  }
  bool uses_steps() const override { return false; }
  std::unique_ptr<State> new_state(const at::Tensor& parameter,
                                   const Options& options) const override {
    const auto& own = static_cast<const Own&>(options);
    auto state = std::make_unique<Kept>();
    state->step(0);
    state->square_avg(zeros_for(parameter));
    if (own.momentum() > 0) state->momentum_buffer(zeros_for(parameter));
    if (own.centered()) state->grad_avg(zeros_for(parameter));
    return state;
  }
  StateTensors tensors(const State& state, const Options& options) const override {
    const auto& own = static_cast<const Own&>(options);
    const auto& kept = static_cast<const Kept&>(state);
    StateTensors all{&kept.square_avg()};
    size_t next = 1;
    if (own.momentum() > 0) all[next++] = &kept.momentum_buffer();
    if (own.centered()) all[next] = &kept.grad_avg();
    return all;
  }
  std::vector<double> options(const Options& options) const override {
    const auto& own = static_cast<const Own&>(options);
    return {own.alpha(), own.eps(), own.weight_decay(), own.momentum(), double(own.centered())};
  }
  void run(const Bucket& bucket, const Options& options, const Numbers& numbers) const override {
    const auto& own = static_cast<const Own&>(options);
    const bool has_momentum = own.momentum() > 0;
    Tensors decayed;
    if (own.weight_decay() != 0)
      decayed = at::_foreach_add(bucket.gradients, bucket.parameters, own.weight_decay());
    const Tensors& gradients = own.weight_decay() != 0 ? decayed : bucket.gradients;
    const Tensors& squares = bucket.state[0];
    at::_foreach_mul_(squares, own.alpha());
    at::_foreach_addcmul_(squares, gradients, gradients, 1 - own.alpha());
    const Tensors average =
        own.centered() ? centered(squares, bucket.state[has_momentum ? 2 : 1], gradients, own)
                       : at::_foreach_sqrt(squares);
    at::_foreach_add_(average, own.eps());
    if (has_momentum) {
      at::_foreach_mul_(bucket.state[1], own.momentum());
      at::_foreach_addcdiv_(bucket.state[1], gradients, average, 1);
      return descend(bucket, bucket.state[1], numbers);
    }
    divide(bucket.parameters, gradients, average, numbers);
  }

 private:
  static Tensors centered(const Tensors& squares, const Tensors& means, const Tensors& gradients,
                          const Own& own) {
    at::_foreach_mul_(means, own.alpha());
    at::_foreach_add_(means, gradients, 1 - own.alpha());
    Tensors variances = at::_foreach_addcmul(squares, means, means, -1);
    at::_foreach_sqrt_(variances);
    return variances;
  }

  /// p -= rate * gradient / average
  static void divide(const Tensors& parameters, const Tensors& gradients, const Tensors& average,
                     const Numbers& numbers) {
    if (!numbers.rate_tensor.defined())
      return at::_foreach_addcdiv_(parameters, gradients, average, -numbers.rate);
    const auto count = static_cast<int64_t>(parameters.size());
    at::_foreach_addcdiv_(parameters, gradients, average,
                          numbers.rate_tensor.neg().expand({count}).contiguous());
  }
};

}  // namespace

template <>
const Rule& rule_of<torch::optim::SGD>() {
  static const SgdRule rule;
  return rule;
}
template <>
const Rule& rule_of<torch::optim::Adam>() {
  static const AdamRule<torch::optim::AdamOptions, torch::optim::AdamParamState, false> rule;
  return rule;
}
template <>
const Rule& rule_of<torch::optim::AdamW>() {
  static const AdamRule<torch::optim::AdamWOptions, torch::optim::AdamWParamState, true> rule;
  return rule;
}
template <>
const Rule& rule_of<torch::optim::RMSprop>() {
  static const RmspropRule rule;
  return rule;
}
template <>
const Rule& rule_of<torch::optim::Adagrad>() {
  static const AdagradRule rule;
  return rule;
}

}  // namespace ahead::optim
