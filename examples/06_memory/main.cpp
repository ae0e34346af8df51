// Chooses what the forward saves for the backward: everything, as eager does, or less, computing
// the rest again. Checkpoints say so in the program itself, compiled or not.

#include <ahead/ahead.h>

#include "models/checks.h"
#include "models/memory.h"
#include "models/models.h"
#include "models/same.h"

namespace {

using at::Tensor;

models::GptOptions gpt_options() {
  models::GptOptions options;
  options.layers = 4;
  options.width = 128;
  return options;
}

/// Compiles a loss with a first call, which runs the loss itself and so takes eager's memory. The
/// calls after it run from graphs; Confirm::Never has none of them observed again.
template <class Loss, class Input>
auto compile_now(const Loss& loss, const Input& input, ahead::Options options) {
  options.fullgraph = true;
  options.confirm = ahead::Confirm::Never;
  auto compiled = ahead::compile(loss, options);
  compiled(input);
  return compiled;
}

/// Products of matrices and attention are expensive; everything else is cheap to compute again.
bool is_expensive(const ahead::Node& node) {
  const std::string& name = node.op().name();
  return name.find("mm") != std::string::npos || name.find("attention") != std::string::npos;
}

/// A partitioner of our own: tags the joint graph and leaves the cutting to Ahead's.
ahead::PartitionedGraphs save_expensive(const ahead::JointGraph& joint) {
  ahead::JointGraph tagged = joint;
  for (ahead::Node& node : tagged.nodes()) {
    if (node.phase == ahead::Phase::Forward && !is_expensive(node)) {
      node.set(ahead::Tag::MustRecompute);
    }
  }
  return ahead::partition_default(tagged);
}

/// A few layers, one after the other.
using Layers = std::vector<torch::nn::Linear>;

/// Each layer keeps its input and nothing else, if it is checkpointed.
Tensor run_layers(const Layers& layers, Tensor x, bool with_checkpoints) {
  const auto layer = [](torch::nn::Linear linear, const Tensor& in) {
    return in + torch::gelu(torch::layer_norm(linear(in), {in.size(-1)}));
  };
  const auto policy = ahead::CheckpointPolicy::recompute_everything();
  for (const torch::nn::Linear& linear : layers) {
    const auto call = [layer, linear](const Tensor& in) { return layer(linear, in); };
    x = with_checkpoints ? ahead::checkpoint(policy, call, x) : call(x);
  }
  return x;
}

struct Step {
  Tensor loss;
  std::vector<Tensor> gradients;
  int64_t peak = 0;
};

bool same(const Step& a, const Step& b) {
  return models::same(a.loss, b.loss) && models::same(a.gradients, b.gradients);
}

void report(const std::string& name, int64_t saved, const Step& step) {
  std::printf("%-22s  %8.2f  %8.2f\n", name.c_str(), 1e-6 * static_cast<double>(saved),
              1e-6 * static_cast<double>(step.peak));
}

void report(const std::string& name, const Step& step) {
  std::printf("%-22s  %8.2f\n", name.c_str(), 1e-6 * static_cast<double>(step.peak));
}

/// The same layers with and without checkpoints, uncompiled and compiled.
void show_checkpoints(models::Checks& check, models::MemoryCounter& memory) {
  Layers layers;
  std::vector<Tensor> parameters;
  for (int i = 0; i < 8; ++i) {
    layers.emplace_back(torch::nn::Linear(128, 128));
    for (const Tensor& parameter : layers.back()->parameters()) parameters.push_back(parameter);
  }
  const Tensor x = at::randn({256, 128});
  const auto measure_layers = [&](auto&& loss) {
    Step step;
    step.peak = memory.peak([&] {
      step.loss = loss(x);
      step.gradients = torch::autograd::grad({step.loss}, parameters);
    });
    return step;
  };
  const auto plain = [&](const Tensor& in) { return run_layers(layers, in, false).sum(); };
  const auto checkpointed = [&](const Tensor& in) { return run_layers(layers, in, true).sum(); };
  auto compiled = compile_now(checkpointed, x, {});
  const Step eager = measure_layers(plain);
  std::printf("\n%-22s  %8s\n", "MB", "peak");
  report("eager", eager);
  for (const auto& [name, step] : {std::pair("checkpoints", measure_layers(checkpointed)),
                                   std::pair("checkpoints, compiled", measure_layers(compiled))}) {
    report(name, step);
    check(same(step, eager) && step.peak < eager.peak,
          std::string(name) + ": eager's loss and gradients, with less memory");
  }
  check(compiled.stats().cache_hits == 1, "the compiled step ran from graphs");
}

/// A training step without the update, and the memory it needs beyond the parameters.
template <class Loss>
Step measure(Loss& loss, const models::Workload& gpt, models::MemoryCounter& memory) {
  Step step;
  step.peak = memory.peak([&] {
    step.loss = loss(gpt.inputs)[0];
    step.gradients = torch::autograd::grad({step.loss}, gpt.parameters);
  });
  return step;
}

}  // namespace

int main() {
  models::Checks check;
  models::MemoryCounter memory;
  models::Workload gpt = models::gpt_workload(gpt_options());

  const Step eager = measure(gpt.loss, gpt, memory);

  // What a partitioner decides can be read before anything is compiled.
  const ahead::JointGraph joint = ahead::trace_joint(gpt.loss, gpt.inputs);
  const ahead::PartitionedGraphs own = save_expensive(joint);
  std::printf("The first decisions of a partitioner of our own:\n%.480s...\n\n",
              own.explain().c_str());
  std::printf("%-22s  %8s  %8s\n", "MB", "saved", "peak");

  using ahead::Partitioner;
  auto saving = compile_now(gpt.loss, gpt.inputs, {.partitioner = Partitioner::Default});
  const Step saving_step = measure(saving, gpt, memory);
  const int64_t saved = ahead::partition_default(joint).saved_bytes();
  report("Partitioner::Default", saved, saving_step);
  check(same(saving_step, eager), "eager's loss and gradients, saving what eager saves");
  check(saving.stats().cache_hits == 1, "this step ran from graphs");

  auto computing = compile_now(gpt.loss, gpt.inputs, {.partitioner = save_expensive});
  const Step own_step = measure(computing, gpt, memory);
  report("our own", own.saved_bytes(), own_step);
  check(same(own_step, eager) && own_step.peak < saving_step.peak &&
            computing.stats().cache_hits == 1,
        "the same, with less memory");

  // The default: the cheapest mix of saving and computing again, within a share of what eager
  // saves.
  int64_t before = saved;
  for (const double budget : {1.0, 0.5, 0.2}) {
    auto compiled = compile_now(gpt.loss, gpt.inputs, {.memory_budget = budget});
    const Step step = measure(compiled, gpt, memory);
    const int64_t bytes = ahead::partition_min_cut(joint, {.memory_budget = budget}).saved_bytes();
    char name[32];
    std::snprintf(name, sizeof name, "MinCut, budget %.1f", budget);
    report(name, bytes, step);
    check(same(step, eager) && bytes <= before && step.peak <= saving_step.peak &&
              compiled.stats().cache_hits == 1,
          "the same, saving no more than before");
    before = bytes;
  }

  show_checkpoints(check, memory);
  return check.exit_code();
}
