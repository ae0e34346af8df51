#include "engines.h"

#include <ahead/ahead.h>

#include <stdexcept>
#include <type_traits>
#include <utility>

namespace {

using at::Tensor;
using models::Workload;
using Tensors = std::vector<at::Tensor>;

constexpr double kRate = 1e-4, kDecay = 1e-2;

/// Calls a function by its own code, or from graphs.
template <class F>
class Plain {
 public:
  Plain(F f, const std::string&) : f_(std::move(f)) {}
  auto operator()() { return f_(); }
  uint64_t hits() const { return 0; }

 private:
  F f_;
};

template <class F>
class Graphs {
 public:
  Graphs(F f, const std::string& backend)
      : f_(ahead::compile(
            std::move(f),
            {.backend = backend, .fullgraph = true, .confirm = ahead::Confirm::Never})) {}
  auto operator()() { return f_(); }
  uint64_t hits() const { return f_.stats().cache_hits; }

 private:
  ahead::Compiled<F> f_;
};

/// An engine that calls a function made of the workload, and does the rest of the step around it.
template <class Call, class Around>
class EngineOf final : public Engine {
 public:
  EngineOf(Call call, Around around) : call_(std::move(call)), around_(std::move(around)) {}
  Tensor step() override { return around_(call_); }
  uint64_t hits() const override { return call_.hits(); }

 private:
  Call call_;
  Around around_;
};

template <template <class> class Caller, class F, class Around>
std::unique_ptr<Engine> engine_of(const std::string& backend, F f, Around around) {
  Caller<F> call(std::move(f), backend);
  return std::make_unique<EngineOf<Caller<F>, Around>>(std::move(call), std::move(around));
}

void forget_gradients(const Workload& workload) {
  for (const Tensor& parameter : workload.parameters) parameter.mutable_grad().reset();
  for (const Tensor& input : workload.inputs) input.mutable_grad().reset();
}

template <template <class> class Caller>
std::unique_ptr<Engine> step_engine(const std::string& backend, const Workload& workload) {
  auto loss = [&workload] { return workload.loss(workload.inputs)[0]; };
  return engine_of<Caller>(backend, loss, [&workload](auto& call) {
    forget_gradients(workload);
    const Tensor value = call();
    value.backward();
    return value.detach();
  });
}

template <template <class> class Caller>
std::unique_ptr<Engine> inside_engine(const std::string& backend, const Workload& workload) {
  auto gradients = [&workload] {
    const Tensor loss = workload.loss(workload.inputs)[0];
    Tensors results = torch::autograd::grad({loss}, workload.parameters);
    results.push_back(loss.detach());
    return results;
  };
  return engine_of<Caller>(backend, gradients, [&workload](auto& call) {
    Tensors results = call();
    for (size_t i = 0; i < workload.parameters.size(); ++i)
      workload.parameters[i].mutable_grad() = std::move(results[i]);
    return results.back();
  });
}

/// A whole step of training as one function. LibTorch's optimizers run eagerly, Ahead's from
/// graphs.
template <template <class> class Caller, class Optimizer>
std::unique_ptr<Engine> update_engine(const std::string& backend, const Workload& workload) {
  auto optimizer = std::make_shared<Optimizer>(
      workload.parameters, torch::optim::AdamWOptions(kRate).weight_decay(kDecay));
  auto whole = [&workload, optimizer] {
    optimizer->zero_grad();
    const Tensor loss = workload.loss(workload.inputs)[0];
    loss.backward();
    optimizer->step();
    return loss.detach();
  };
  return engine_of<Caller>(backend, whole, [](auto& call) { return call(); });
}

}  // namespace

std::unique_ptr<Engine> make_engine(const std::string& name, const Workload& workload,
                                    const std::string& way) {
  const bool is_eager = name == "eager";
  if (way == "step")
    return is_eager ? step_engine<Plain>(name, workload) : step_engine<Graphs>(name, workload);
  if (way == "inside")
    return is_eager ? inside_engine<Plain>(name, workload) : inside_engine<Graphs>(name, workload);
  if (way == "update")
    return is_eager ? update_engine<Plain, torch::optim::AdamW>(name, workload)
                    : update_engine<Graphs, ahead::optim::AdamW>(name, workload);
  throw std::invalid_argument("There is no way " + way + " to run a model.");
}
