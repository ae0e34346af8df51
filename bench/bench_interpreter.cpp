// A training step run from its joint graph, against the same step in eager LibTorch. With one
// thread, that thread's processor time is taken; with several, the time on the wall.

#include <ahead/ahead.h>
#include <benchmark/benchmark.h>

#include "models/models.h"
#include "models/timing.h"

namespace {

using at::Tensor;
using models::Workload;

template <class Eager, class Ours>
void compare(benchmark::State& state, Eager&& eager, Ours&& ours, int threads) {
  eager();
  ours();
  models::Pairs pairs{threads == 1 ? models::thread_clock : models::wall_clock};
  for (auto _ : state) {
    pairs.run(eager, ours);
    state.SetIterationTime((pairs.first.back() + pairs.second.back()) * 1e-3);
  }
  state.counters["eager_ms"] = models::median(pairs.first);
  state.counters["graph_ms"] = models::median(pairs.second);
  state.counters["ratio"] = models::median(pairs.ratios);
}

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
  compare(state, eager_step, graph_step, threads);
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

/// The matrix products of the MLP's step alone, into memory that is there: what no graph of the
/// same kernels can save.
void products(benchmark::State& state, int threads) {
  at::set_num_threads(threads);
  const Workload workload = models::mlp_workload();
  const ahead::Graph graph = ahead::trace_joint(workload.loss, workload.inputs);
  struct Product {
    Tensor bias, left, right, result;
  };
  const auto like = [](const ahead::Value* value) {
    return at::empty_strided(value->meta.sizes, value->meta.strides).normal_();
  };
  std::vector<Product> all;
  for (const ahead::Node& node : graph.nodes()) {
    const bool is_plain = node.op().name() == "aten.mm";
    if (!is_plain && node.op().name() != "aten.addmm") continue;
    const size_t first = is_plain ? 0 : 1;
    all.push_back({is_plain ? Tensor() : like(node.args()[0].value()),
                   like(node.args()[first].value()), like(node.args()[first + 1].value()),
                   like(node.result())});
  }
  auto eager_step = [&] { models::eager_step(workload); };
  auto products_alone = [&] {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    for (Product& product : all) {
      if (product.bias.defined())
        at::addmm_out(product.result, product.bias, product.left, product.right);
      else
        at::mm_out(product.result, product.left, product.right);
    }
  };
  compare(state, eager_step, products_alone, threads);
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
  add("products/mlp", products);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
}
