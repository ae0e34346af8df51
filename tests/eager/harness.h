#pragma once

#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ahead/ahead.h"
#include "support/eager.h"

/// Programs that are run twice from one seed, once as they are and once compiled, and must show the
/// same. A program is a generic lambda `[](auto& wrap, Log& log)`: it makes all its state itself,
/// calls `wrap(f)` or `wrap(f, options)` where a user would call ahead::compile, and logs whatever
/// can be seen.
namespace ahead::test {

/// What a program shows of its run, in order.
class Log {
 public:
  /// Contents, metadata, requires_grad, whether it is a leaf, and its `.grad`.
  void operator()(const std::string& name, const at::Tensor& tensor);
  void operator()(const std::string& name, const std::vector<at::Tensor>& tensors);
  void operator()(const std::string& name, double number);
  void operator()(const std::string& name, const std::string& text);
  /// All parameters and buffers.
  void operator()(const std::string& name, const torch::nn::Module& module);

  /// The same, but values need not be equal to the bit: what derivatives of derivatives made, whose
  /// sums are made in another order.
  void close(const std::string& name, const at::Tensor& tensor);
  void close(const std::string& name, const torch::nn::Module& module);

  size_t size() const { return items_.size(); }
  /// The first thing that the other log has not just so, in words; empty: there is none.
  std::string difference(const Log& other) const;

 private:
  struct Item {
    std::string name, text;
    at::Tensor contents = {};
    TensorFlags flags = {};
    bool is_close = false;
  };
  void add_tensor(const std::string& name, const at::Tensor& tensor);
  std::vector<Item> items_;
};

/// Counts of all that a program compiled, and what it was told when it asked why.
struct Outcome : CompileStats {
  std::string explanation;

  void add(const CompileStats& other);
  std::string str() const;
};

/// A callable as it is, with what ahead::Compiled has besides.
template <class F>
class Plain {
 public:
  explicit Plain(F f) : f_(std::move(f)) {}
  template <class... Args>
  decltype(auto) operator()(Args&&... args) {
    return detail::call(f_, std::forward<Args>(args)...);
  }
  template <class... Args>
  void explain(const Args&...) {}
  void reset() {}

 private:
  F f_;
};

/// Whether the environment variable AHEAD_TEST_EXPLAIN asks for a line about each call and run.
bool is_explained();
void say(const std::string& line);

/// A compiled callable that reports its counts when it ends.
template <class F>
class Watched {
 public:
  Watched(F f, Options options, Outcome& outcome)
      : compiled_(std::move(f), std::move(options)), outcome_(outcome) {}
  Watched(const Watched&) = delete;
  Watched& operator=(const Watched&) = delete;
  ~Watched() { outcome_.add(compiled_.stats()); }

  template <class... Args>
  auto operator()(Args&&... args) {
    if (is_explained()) say("before the call: " + compiled_.explain(args...));
    return compiled_(std::forward<Args>(args)...);
  }
  template <class... Args>
  void explain(const Args&... args) {
    outcome_.explanation = compiled_.explain(args...);
  }
  void reset() { compiled_.reset(); }
  CompileStats stats() const { return compiled_.stats(); }

 private:
  Compiled<F> compiled_;
  Outcome& outcome_;
};

/// The two ways to wrap what a user would compile.
struct Eager {
  template <class F>
  Plain<F> operator()(F f, const Options& = {}) {
    return Plain<F>(std::move(f));
  }
};
struct Compiling {
  Outcome& outcome;
  /// Takes the place of what the program says.
  std::optional<Confirm> confirm = std::nullopt;

  template <class F>
  Watched<F> operator()(F f, Options options = {}) {
    if (confirm) options.confirm = *confirm;
    return Watched<F>(std::move(f), std::move(options), outcome);
  }
};

/// Sets all seeds.
void seed();
/// Expects what a compiled run logged, or threw, to be what eager logged, and the calls to add up.
void expect_same_run(const Log& eager, const Log& compiled, const std::string& error,
                     const Outcome& outcome);

template <class Body>
Log run_eagerly(const Body& body) {
  Log log;
  seed();
  Eager eager;
  body(eager, log);
  log("random numbers", random_state());
  return log;
}

template <class Body>
Outcome run_compiled(const Body& body, const Log& expected, std::optional<Confirm> confirm) {
  Outcome outcome;
  Log log;
  std::string error;
  seed();
  try {
    Compiling compiling{outcome, confirm};
    body(compiling, log);
    log("random numbers", random_state());
  } catch (const std::exception& thrown) {
    error = thrown.what();
  }
  expect_same_run(expected, log, error, outcome);
  return outcome;
}

/// Expects a program to show the same eagerly and compiled with that setting.
template <class Body>
Outcome like_eager(const Body& body, Confirm confirm) {
  return run_compiled(body, run_eagerly(body), confirm);
}

/// Expects a program to show the same eagerly, compiled, and compiled with every call observed.
/// Returns the counts of the second run.
template <class Body>
Outcome like_eager(const Body& body) {
  const Log expected = run_eagerly(body);
  const Outcome outcome = run_compiled(body, expected, std::nullopt);
  SCOPED_TRACE("with Confirm::EveryCall");
  const Outcome observed = run_compiled(body, expected, Confirm::EveryCall);
  EXPECT_EQ(observed.cache_hits, 0u);
  return outcome;
}

/// One step of training as users write it: no gradients, the loss, its gradients, the step. Returns
/// the loss.
template <class LossOf>
at::Tensor train_step(torch::optim::Optimizer& optimizer, const LossOf& loss_of) {
  optimizer.zero_grad();
  const at::Tensor loss = loss_of();
  loss.backward();
  optimizer.step();
  return loss;
}
/// The same for a loss that is known already.
inline at::Tensor train_step(torch::optim::Optimizer& optimizer, const at::Tensor& loss) {
  return train_step(optimizer, [&] { return loss; });
}

/// A critic and a generator, each with an optimizer of its own, trained in one step.
template <class OfCritic, class OfGenerator>
Outcome train_two_players() {
  return like_eager([](auto& wrap, Log& log) {
    auto critic = torch::nn::Linear(4, 1), generator = torch::nn::Linear(3, 4);
    OfCritic of_critic(critic->parameters(), 0.01);
    OfGenerator of_generator(generator->parameters(), 0.01);
    auto step = wrap([&](const at::Tensor& real) {
      of_critic.zero_grad();
      const at::Tensor made = generator->forward(torch::randn({6, 3}));
      const at::Tensor distance =
          critic->forward(made.detach()).mean() - critic->forward(real).mean();
      distance.backward();
      of_critic.step();
      train_step(of_generator, [&] {
        return -critic->forward(generator->forward(torch::randn({6, 3}))).mean();
      });
      return distance.detach();
    });
    for (int call = 0; call < 24; ++call) {
      log("distance", step(at::randn({6, 4})));
      log("critic", *critic);
      log("generator", *generator);
    }
  });
}

/// Expects calls 1, 2, 4, 8, … to be observed and all others to run from graphs.
void expect_doubling(const Outcome& outcome);
/// Expects at least a third of the calls to run from graphs, and none eagerly.
void expect_hits(const Outcome& outcome);
/// Expects that some calls ran from graphs, and none eagerly.
void expect_some_hits(const Outcome& outcome);
/// Expects calls to run eagerly in the end, which takes a few observed ones.
void expect_eager(const Outcome& outcome);
/// Expects one or the other: not to be observed for ever.
void expect_settled(const Outcome& outcome);

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

}  // namespace ahead::test
