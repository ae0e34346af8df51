#include <ATen/autocast_mode.h>
#include <c10/util/ScopeExit.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <random>
#include <thread>

#include "ahead/ahead.h"
#include "support/resident_memory.h"

/// Threads that train, forget, ask, switch modes and throw, all at once and for AHEAD_SOAK_SECONDS
/// (a few by default; `make soak` takes minutes). Every gradient is compared with eager's to the
/// bit, the memory of the process must stay where it is, and nobody may stop.
namespace ahead {
namespace soak_test {

using at::Tensor;
using compiled_autograd::Disable;
using compiled_autograd::Enable;
using Clock = std::chrono::steady_clock;
using Tensors = std::vector<Tensor>;

constexpr int num_threads = 6;
constexpr int64_t most_growth = 32 << 20;
constexpr std::chrono::seconds longest_pause(120);

std::chrono::duration<double> soak_time() {
  const char* const seconds = std::getenv("AHEAD_SOAK_SECONDS");
  return std::chrono::duration<double>(seconds == nullptr ? 4 : std::atof(seconds));
}

struct Refusal : std::runtime_error {
  Refusal() : std::runtime_error("not now") {}
};

/// A backend that does not always work.
std::atomic<uint64_t> num_backend_calls{0};
void work_mostly() {
  if (++num_backend_calls % 13 == 0) throw Refusal();
}

const char* const flaky_backend = [] {
  register_backend("soak_flaky", [](const Graph& graph, const std::vector<TensorMeta>&) {
    work_mostly();
    auto interpreter = std::make_shared<const Interpreter>(graph);
    return [interpreter](Tensors&& args) {
      work_mostly();
      return (*interpreter)(std::move(args));
    };
  });
  return "soak_flaky";
}();

/// What all threads compute, each with parameters of its own.
Tensor loss_of(const Tensor& x, const Tensor& w, const Tensor& v) {
  return (x.mm(w).tanh().mm(v) * x.sum()).exp().mean();
}

struct Net final : torch::nn::Module {
  Net() : first(register_module("first", torch::nn::Linear(3, 4))) {}
  Tensor forward(const Tensor& x) {
    const Tensor h = first(x).tanh();
    return is_training() ? h.sum() : h.mean();
  }
  torch::nn::Linear first;
};

/// What threads share.
struct Shared {
  Compiled<Tensor (*)(const Tensor&, const Tensor&, const Tensor&)> loss = compile(&loss_of);
  Compiled<Tensor (*)(const Tensor&, const Tensor&, const Tensor&)> flaky =
      compile(&loss_of, {.backend = flaky_backend});
  std::atomic<int> wrong{0};
  std::atomic<uint64_t> steps{0}, refusals{0};
  std::atomic<bool> is_over{false};
};

class Worker {
 public:
  Worker(Shared& shared, uint32_t seed) : shared_(shared), random_(seed) {
    const std::lock_guard<std::mutex> lock(seeding());
    torch::manual_seed(seed);
    w_ = torch::randn({3, 4}, torch::requires_grad());
    v_ = torch::randn({4, 2}, torch::requires_grad());
    for (int64_t batch = 1; batch <= 5; ++batch) inputs_.push_back(torch::randn({batch, 3}) / 3);
  }

  void run() {
    while (!shared_.is_over) {
      try {
        step();
      } catch (const Refusal&) {
        ++shared_.refusals;
      } catch (const std::exception& error) {
        ADD_FAILURE() << error.what();
        ++shared_.wrong;
      }
      ++shared_.steps;
    }
  }

 private:
  static std::mutex& seeding() {
    static std::mutex mutex;
    return mutex;
  }

  bool chance(uint32_t one_in) { return random_() % one_in == 0; }

  void step() {
    switch (random_() % 16) {
      case 0:
        return forget();
      case 1:
        return ask();
      case 2:
        return infer();
      case 3:
      case 4:
        return switch_modes();
      case 5:
        return throw_in_a_hook();
      case 6:
        return checkpointed();
      case 7:
        return train(shared_.flaky);
      default:
        return train(shared_.loss);
    }
  }

  void forget() {
    if (chance(4)) shared_.loss.reset();
    if (chance(4)) shared_.flaky.reset();
    if (chance(4)) compiled_autograd::reset();
  }

  void ask() {
    compiled_autograd::stats();
    compiled_autograd::graphs();
    compiled_autograd::reasons();
    shared_.loss.stats();
    shared_.flaky.programs();
    shared_.loss.explain(inputs_[0], w_, v_);
  }

  /// The gradients that a step leaves, and its loss.
  template <class Step>
  Tensors gradients(Step&& step) {
    w_.mutable_grad() = v_.mutable_grad() = Tensor();
    const Tensor loss = step();
    loss.backward();
    return {loss.detach(), w_.grad(), v_.grad()};
  }

  void expect_same(const Tensors& found, const Tensors& expected) {
    for (size_t i = 0; i < expected.size(); ++i)
      shared_.wrong += found[i].defined() && at::equal(found[i], expected[i]) ? 0 : 1;
  }

  void maybe_enable(std::optional<Enable>& on) {
    if (chance(3)) return;
    compiled_autograd::Options options;
    options.cache_limit = 4;
    if (chance(3)) options.dynamic = chance(2);
    if (chance(8)) options.backend = flaky_backend;
    on.emplace(std::move(options));
  }

  template <class F>
  void train(F& f) {
    const Tensor& x = inputs_[random_() % inputs_.size()];
    const auto by = [&](auto& function) { return gradients([&] { return function(x, w_, v_); }); };
    std::optional<Enable> on;
    maybe_enable(on);
    const Tensors found = by(f);
    const Disable off;
    expect_same(found, by(loss_of));
  }

  void infer() {
    const at::NoGradGuard no_grad;
    const Tensor& x = inputs_[random_() % inputs_.size()];
    expect_same({shared_.loss(x, w_, v_)}, {loss_of(x, w_, v_)});
  }

  void switch_modes() {
    const Tensor& x = inputs_[random_() % inputs_.size()];
    if (chance(2)) {
      net_->train(chance(2));
      net_->zero_grad();
      compiled_net_(x).backward();
      const Tensor found = net_->first->weight.grad().clone();
      net_->zero_grad();
      net_->forward(x).backward();
      return expect_same({found}, {net_->first->weight.grad()});
    }
    std::optional<Enable> on;
    maybe_enable(on);
    at::autocast::set_autocast_enabled(at::kCPU, true);
    const auto end = c10::make_scope_exit([] {
      at::autocast::clear_cache();
      at::autocast::set_autocast_enabled(at::kCPU, false);
    });
    const Tensors found = gradients([&] { return loss_of(x, w_, v_); });
    at::autocast::clear_cache();
    const Disable off;
    expect_same(found, gradients([&] { return loss_of(x, w_, v_); }));
  }

  void throw_in_a_hook() {
    std::optional<Enable> on;
    maybe_enable(on);
    const Tensor h = inputs_[2].mm(w_);
    h.register_hook([](const Tensor& gradient) -> Tensor {
      if (gradient.defined()) throw Refusal();
      return gradient;
    });
    h.sum().backward();
    ++shared_.wrong;
  }

  void checkpointed() {
    const Tensor& x = inputs_[random_() % inputs_.size()];
    const Tensors expected = gradients([&] { return loss_of(x, w_, v_); });
    std::optional<Enable> on;
    maybe_enable(on);
    const Tensors found = gradients(
        [&] { return checkpoint(CheckpointPolicy::recompute_everything(), loss_of, x, w_, v_); });
    expect_same(found, expected);
  }

  Shared& shared_;
  std::mt19937 random_;
  Tensor w_, v_;
  Tensors inputs_;
  std::shared_ptr<Net> net_ = std::make_shared<Net>();
  Compiled<std::shared_ptr<Net>> compiled_net_ = compile(net_);
};

/// Waits until a moment, or aborts where nobody makes a step any more: a deadlock would say
/// nothing.
void wait_until(Clock::time_point end, const Shared& shared) {
  uint64_t before = 0;
  Clock::time_point last_change = Clock::now();
  while (Clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    const uint64_t steps = shared.steps;
    if (std::exchange(before, steps) != steps) last_change = Clock::now();
    if (Clock::now() - last_change < longest_pause) continue;
    std::cerr << "no thread makes a step after " << steps << "\n";
    std::abort();
  }
}

TEST(Soak, EverythingAtOnce) {
  Shared shared;
  std::vector<std::thread> threads;
  for (uint32_t number = 0; number < num_threads; ++number)
    threads.emplace_back([&shared, number] { Worker(shared, number + 1).run(); });
  const Clock::time_point start = Clock::now();
  const auto time = std::chrono::duration_cast<Clock::duration>(soak_time());
  wait_until(start + time / 2, shared);
  const int64_t half = test::resident_memory();
  const uint64_t steps_half = shared.steps;
  wait_until(start + time, shared);
  const int64_t grown = test::resident_memory() - half;
  shared.is_over = true;
  for (std::thread& thread : threads) thread.join();
  std::cout << shared.steps << " steps, " << shared.refusals << " of them refused, memory grew by "
            << grown / 1024 << " KiB in the second half\n";
  EXPECT_EQ(shared.wrong, 0);
  EXPECT_GT(shared.steps, steps_half);
  EXPECT_LT(grown, most_growth);
}

}  // namespace soak_test
}  // namespace ahead
