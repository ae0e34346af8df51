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

void report(const char* name, const Step& step) {
  std::printf("%-20s  peak %6.2f MB\n", name, 1e-6 * static_cast<double>(step.peak));
}

}  // namespace

int main() {
  models::Checks check;
  models::MemoryCounter memory;
  models::Workload gpt = models::gpt_workload(gpt_options());

  // What a partitioner decides can be read before anything is compiled.
  const ahead::JointGraph joint = ahead::trace_joint(gpt.loss, gpt.inputs);
  const ahead::PartitionedGraphs all = ahead::partition_default(joint);
  const ahead::PartitionedGraphs few = save_expensive(joint);
  std::printf("partition_default saves %.2f MB, ours %.2f MB. Its first decisions:\n%.*s...\n",
              1e-6 * static_cast<double>(all.saved_bytes()),
              1e-6 * static_cast<double>(few.saved_bytes()), 600, few.explain().c_str());
  check(few.saved_bytes() < all.saved_bytes(), "our partition saves less");

  using ahead::Partitioner;
  auto saving = ahead::compile(gpt.loss, {.fullgraph = true, .partitioner = Partitioner::Default});
  auto computing = ahead::compile(gpt.loss, {.fullgraph = true, .partitioner = save_expensive});
  const Step eager = measure(gpt.loss, gpt, memory);
  const Step default_step = measure(saving, gpt, memory);
  const Step own_step = measure(computing, gpt, memory);
  report("eager", eager);
  report("Partitioner::Default", default_step);
  report("save_expensive", own_step);
  check(equal(default_step, eager), "Partitioner::Default gives eager's loss and gradients");
  check(equal(own_step, eager), "computing again gives them, too");
  check(own_step.peak < default_step.peak, "and needs less memory");
  return check.exit_code();
}
