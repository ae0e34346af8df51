// A training step run from its joint graph, against the same step in eager LibTorch. With one
// thread, that thread's processor time is taken; with several, the time on the wall.

#include <ahead/ahead.h>
#include <benchmark/benchmark.h>

#include "compare.h"
#include "models/models.h"

namespace {

using at::Tensor;
using models::Workload;

void step(benchmark::State& state, const Workload& workload, int threads) {
  at::set_num_threads(threads);
  const ahead::Interpreter run(ahead::trace_joint(workload.loss, workload.inputs));
  const std::vector<Tensor> arguments = models::joint_arguments(workload);
  auto eager_step = [&] { models::eager_step(workload); };
  // Like the eager step, it lets go of the gradients of the step before and leaves new ones behind.
  std::vector<Tensor> results;
  auto graph_step = [&] {
    results.clear();
    results = run(std::vector<Tensor>(arguments));
  };
  compare(state, eager_step, graph_step, /*steps=*/1, threads);
}

/// Fifty operators on so few numbers that only the overhead of calling them is left.
Workload pointwise_chain() {
  torch::manual_seed(0);
  Tensor weight = torch::randn({16}).requires_grad_();
  auto loss = [weight](const std::vector<Tensor>& in) {
    Tensor x = in[0] * weight;
    for (int i = 0; i < 24; ++i) x = torch::sin(x) * 1.01;
    return std::vector<Tensor>{x.sum()};
  };
  return {"chain", {weight}, {torch::randn({16})}, loss};
}

/// Norms and activations on tensors of 4 MB: what they take depends on where the memory comes from.
Workload norm_chain() {
  torch::manual_seed(0);
  std::vector<Tensor> parameters;
  for (int i = 0; i < 6; ++i) {
    parameters.push_back(torch::ones({1024}).requires_grad_());
    parameters.push_back(torch::zeros({1024}).requires_grad_());
  }
  auto loss = [parameters](const std::vector<Tensor>& in) {
    Tensor x = in[0];
    for (size_t i = 0; i < parameters.size(); i += 2)
      x = x + torch::gelu(torch::layer_norm(x, {1024}, parameters[i], parameters[i + 1]));
    return std::vector<Tensor>{x.pow(2).mean()};
  };
  return {"norms", parameters, {torch::randn({1024, 1024})}, loss};
}

/// The MLP's step written down kernel by kernel, without autograd: a graph of the same kernels
/// comes close to it at best.
void by_hand(benchmark::State& state, int threads) {
  at::set_num_threads(threads);
  const Workload workload = models::mlp_workload();
  std::vector<Tensor> p;
  for (const Tensor& parameter : workload.parameters) p.push_back(parameter.detach());
  const Tensor x = workload.inputs[0], target = workload.inputs[1], one = torch::ones({});
  std::vector<Tensor> results;
  auto step = [&] {
    results.clear();
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    Tensor first = at::addmm(p[1], x, p[0].t()).relu_();
    Tensor second = at::addmm(p[3], first, p[2].t()).relu_();
    const Tensor logs = at::_log_softmax(at::addmm(p[5], second, p[4].t()), 1, false);
    auto [loss, weight] = at::nll_loss_forward(logs, target, {}, at::Reduction::Mean, -100);
    Tensor gradient =
        at::nll_loss_backward(one, logs, target, {}, at::Reduction::Mean, -100, weight);
    gradient = at::_log_softmax_backward_data(gradient, logs, 1, at::kFloat);
    results.push_back(loss);
    const auto add_layer = [&](const Tensor& input) {
      results.push_back(at::mm(gradient.t(), input));
      results.push_back(at::sum(gradient, {0}, /*keepdim=*/true).view({-1}));
    };
    const auto pass_layer = [&](const Tensor& weights, Tensor& output) {
      Tensor before = at::mm(gradient, weights);
      add_layer(output);
      gradient = at::threshold_backward_out(before, before, output, 0);
      output.reset();
    };
    pass_layer(p[4], second);
    pass_layer(p[2], first);
    add_layer(x);
  };
  compare(
      state, [&] { models::eager_step(workload); }, step, /*steps=*/1, threads);
}

void add(const std::string& name, std::function<void(benchmark::State&, int threads)> run) {
  for (int threads : {1, 2}) {
    auto with_threads = [run, threads](benchmark::State& state) { run(state, threads); };
    const std::string full_name = name + "/threads:" + std::to_string(threads);
    benchmark::RegisterBenchmark(full_name.c_str(), with_threads)
        ->UseManualTime()
        ->Unit(benchmark::kMillisecond);
  }
}

void add_step(const std::string& name, std::function<Workload()> make) {
  add("step/" + name,
      [make](benchmark::State& state, int threads) { step(state, make(), threads); });
}

}  // namespace

int main(int argc, char** argv) {
  add_step("mlp", models::mlp_workload);
  add_step("gpt12", [] { return models::gpt_workload(); });
  add_step("resnet8", models::resnet_workload);
  add_step("lstm", models::lstm_workload);
  add_step("pinn", models::pinn_workload);
  add_step("chain", pointwise_chain);
  add_step("norms", norm_chain);
  add("by_hand/mlp", by_hand);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
}
