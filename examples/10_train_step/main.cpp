// One compiled function that is the whole step of a training: autocast, forward and backward of a
// few microbatches, clipping, the optimizer. The scheduler steps outside, and hits follow it. A
// temperature of our own shows how any object can give its numbers to compiled functions.

#include <ATen/autocast_mode.h>
#include <ahead/ahead.h>
#include <torch/torch.h>

#include <algorithm>
#include <cstdio>
#include <memory>

#include "models/checks.h"
#include "models/same.h"

namespace {

using at::Tensor;

/// While it exists, autocast casts to bfloat16 on the CPU.
class Autocast {
 public:
  Autocast() { at::autocast::set_autocast_enabled(at::kCPU, true); }
  ~Autocast() {
    at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(at::kCPU, false);
  }
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;
};

/// A model, its optimizer, and the step of both.
template <class Optimizer>
struct Trainer {
  torch::nn::Sequential net{torch::nn::Linear(8, 32), torch::nn::GELU(), torch::nn::Linear(32, 4)};
  Optimizer optimizer{net->parameters(), 0.01};

  /// The loss of a batch, and how long the gradients were.
  std::pair<Tensor, Tensor> step(const Tensor& images, const Tensor& labels) {
    constexpr int64_t microbatches = 4;
    optimizer.zero_grad();
    Tensor sum = torch::zeros({});
    const auto x = images.chunk(microbatches), y = labels.chunk(microbatches);
    for (size_t i = 0; i < x.size(); ++i) {
      Tensor logits;
      {
        const Autocast autocast;
        logits = net->forward(x[i]);
      }
      const Tensor loss = torch::cross_entropy_loss(logits.to(at::kFloat), y[i]) / microbatches;
      loss.backward();
      sum = sum + loss.detach();
    }
    // Returns a tensor: LibTorch's own function reads the number, and would keep the step from
    // being compiled.
    const Tensor norm = ahead::clip_grad_norm_(net->parameters(), 1.0);
    optimizer.step();
    return {sum, norm};
  }
};

/// Trains from one seed with what `wrap` makes of the step; the rate is halved every ten steps.
/// Returns the parameters.
template <class Optimizer, class Wrap>
std::vector<Tensor> train(int steps, const Wrap& wrap) {
  torch::manual_seed(0);
  Trainer<Optimizer> trainer;
  torch::optim::StepLR scheduler(trainer.optimizer, 10, 0.5);
  auto step = wrap([&](const Tensor& x, const Tensor& y) { return trainer.step(x, y); });
  for (int i = 0; i < steps; ++i) {
    const Tensor images = torch::randn({32, 8});
    step(images, images.narrow(1, 0, 4).argmax(1));
    scheduler.step();
  }
  return trainer.net->parameters();
}

/// The largest difference between parameters, in units of the rounding of one step.
double distance(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  double most = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const Tensor difference = (a[i] - b[i]).abs() / b[i].abs().clamp_min(0.01);
    most = std::max(most, difference.max().item<double>() / 0x1p-23);
  }
  return most;
}

/// A temperature that falls with each use. Compiled functions ask it: whether they may run from
/// graphs, for the number that comes next, and to count when they have used it.
class Temperature : public ahead::HostState {
 public:
  bool guard() const override { return true; }
  std::vector<Tensor> inputs(size_t ahead) const override {
    return {torch::full({}, 1.0 / static_cast<double>(1 + uses_ + ahead))};
  }
  void commit() override { ++uses_; }

 private:
  size_t uses_ = 0;
};

void show_temperature(models::Checks& check) {
  const auto make = [](std::shared_ptr<Temperature> temperature) {
    return [temperature](const Tensor& x) {
      return torch::softmax(x / ahead::take_next(temperature)[0], -1);
    };
  };
  auto soften = make(std::make_shared<Temperature>());
  auto compiled = ahead::compile(make(std::make_shared<Temperature>()), {.fullgraph = true});
  bool same = true;
  for (int i = 0; i < 12; ++i) {
    const Tensor x = torch::randn({4});
    same = same && models::same(compiled(x), soften(x));
  }
  check(same && compiled.stats().cache_hits > 6,
        "a temperature of our own falls in calls that run from graphs");
}

}  // namespace

int main() {
  models::Checks check;
  constexpr int steps = 64;
  using ahead::optim::AdamW;

  ahead::CompileStats stats;
  const auto eager = train<AdamW>(steps, [](auto step) { return step; });
  const auto compiled = train<AdamW>(steps, [&](auto step) {
    const auto function =
        std::make_shared<ahead::Compiled<decltype(step)>>(step, ahead::Options{.fullgraph = true});
    return [function, &stats](const Tensor& x, const Tensor& y) {
      (*function)(x, y);
      stats = function->stats();
    };
  });
  std::printf("%llu calls: %llu observed, %llu from graphs\n",
              static_cast<unsigned long long>(stats.calls),
              static_cast<unsigned long long>(stats.observed_calls),
              static_cast<unsigned long long>(stats.cache_hits));
  // Roundings in the last places grow as training goes on.
  check(models::same(compiled, eager, 1e-3),
        "compiled, the parameters are those of the same steps run eagerly");
  check(stats.cache_hits > 3 * stats.observed_calls && stats.eager_calls == 0,
        "most steps ran from graphs, whatever the rate was");

  check(distance(train<AdamW>(1, [](auto step) { return step; }),
                 train<torch::optim::AdamW>(1, [](auto step) { return step; })) <= 4,
        "a step is within 4 roundings of torch::optim::AdamW's");

  show_temperature(check);
  return check.exit_code();
}
