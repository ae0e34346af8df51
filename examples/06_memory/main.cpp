// Chooses what the forward saves for the backward: everything, as eager does, or less, computing
// the rest again.

#include <ahead/ahead.h>

#include "models/checks.h"
#include "models/memory.h"
#include "models/models.h"

namespace {

using at::Tensor;

models::GptOptions gpt_options() {
  models::GptOptions options;
  options.layers = 4;
  options.width = 128;
  return options;
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

struct Step {
  Tensor loss;
  std::vector<Tensor> gradients;
  int64_t peak = 0;
};

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

bool equal(const Step& a, const Step& b) {
  bool same = a.loss.equal(b.loss);
  for (size_t i = 0; i < a.gradients.size(); ++i) {
    same = same && a.gradients[i].equal(b.gradients[i]);
  }
  return same;
}

void report(const std::string& name, int64_t saved, const Step& step) {
  std::printf("%-22s  %8.2f  %8.2f\n", name.c_str(), 1e-6 * static_cast<double>(saved),
              1e-6 * static_cast<double>(step.peak));
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
  auto saving = ahead::compile(gpt.loss, {.fullgraph = true, .partitioner = Partitioner::Default});
  const Step saving_step = measure(saving, gpt, memory);
  const int64_t saved = ahead::partition_default(joint).saved_bytes();
  report("Partitioner::Default", saved, saving_step);
  check(equal(saving_step, eager), "eager's loss and gradients, saving what eager saves");

  auto computing = ahead::compile(gpt.loss, {.fullgraph = true, .partitioner = save_expensive});
  const Step own_step = measure(computing, gpt, memory);
  report("our own", own.saved_bytes(), own_step);
  check(equal(own_step, eager) && own_step.peak < saving_step.peak, "the same, with less memory");

  // The default: the cheapest mix of saving and computing again, within a share of what eager
  // saves.
  int64_t before = saved;
  for (const double budget : {1.0, 0.5, 0.2}) {
    auto compiled = ahead::compile(gpt.loss, {.fullgraph = true, .memory_budget = budget});
    const Step step = measure(compiled, gpt, memory);
    const int64_t bytes = ahead::partition_min_cut(joint, {.memory_budget = budget}).saved_bytes();
    char name[32];
    std::snprintf(name, sizeof name, "MinCut, budget %.1f", budget);
    report(name, bytes, step);
    check(equal(step, eager) && bytes <= before && step.peak <= saving_step.peak,
          "the same, saving no more than before");
    before = bytes;
  }
  return check.exit_code();
}
