#include "derivative/sized_open_trace.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/functions/basic_ops.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <mutex>

#include "ahead/errors.h"
#include "base/ambient.h"
#include "base/libtorch.h"
#include "checkpoint/region_watch.h"
#include "derivative/open_trace_gradient.h"
#include "ir/sizes/graph_numbers.h"
#include "observe/state/entry_state.h"
#include "trace/differentiable_trace.h"

namespace ahead::compiling {
namespace {

/// A tensor that looks like this one and has no memory. What was computed may be written to.
at::Tensor stand_in_for(const at::Tensor& input) {
  const at::Tensor made = observe::shell_of(input);
  if (input.is_leaf()) return made.set_requires_grad(input.requires_grad());
  const NodePtr history = make_autograd_node<torch::autograd::Error>(
      "the history of a tensor that a trace was made for");
  history->set_next_edges({});
  torch::autograd::impl::set_gradient_edge(made, {history, history->add_input_metadata(made)});
  return made;
}

/// Tensors that stand for inputs when a trace is made. One that is an input several times is so
/// again.
std::vector<at::Tensor> stand_ins_for(const std::vector<at::Tensor>& inputs) {
  std::vector<at::Tensor> stand_ins;
  for (const at::Tensor& input : inputs) {
    const auto first = std::find_if(inputs.begin(), inputs.end(), [&](const at::Tensor& other) {
      return other.is_same(input);
    });
    const auto place = static_cast<size_t>(first - inputs.begin());
    if (place < stand_ins.size()) {
      stand_ins.push_back(stand_ins[place]);
      continue;
    }
    stand_ins.push_back(input.defined() ? stand_in_for(input) : at::Tensor());
  }
  return stand_ins;
}

}  // namespace

struct SizedOpenTraces::General {
  const Graph graph;
  const JointGraph joint;
  const PartitionedGraphs halves;
  const aot::GraphCompiler compiler;
  const std::optional<AutocastState> autocast;
  const std::vector<runtime::DifferentiableBackward::Need> needs;
};

namespace {

/// Those for some sizes.
template <class General>
class OpenTraceAtSizes final : public runtime::DifferentiableBackward {
 public:
  OpenTraceAtSizes(std::shared_ptr<const General> general, std::vector<int64_t> sizes,
                   aot::FlatFunction function, const std::vector<at::Tensor>& inputs,
                   std::vector<observe::WeakTensor> captured)
      : general_(std::move(general)),
        sizes_(std::move(sizes)),
        function_(std::move(function)),
        inputs_(stand_ins_for(inputs)),
        captured_(std::move(captured)) {}

  const std::vector<Need>& needs() const override { return general_->needs; }
  std::vector<at::Tensor> run(const Request& request) override { return made().run(request); }
  std::vector<Program> programs() override { return {}; }

 private:
  DifferentiableBackward& made() {
    std::lock_guard<std::mutex> lock(mutex_);
    if (made_ == nullptr) made_ = make();
    if (made_ != nullptr) return *made_;
    throw Unsupported(
        "double backward",
        "the function, which has a gradient of its own or writes to parts of what has one, does "
        "not do again what it did when it was called (what it captured was changed, or is gone), "
        "so that second derivatives cannot be found. Take the gradient inside the compiled "
        "function, or compile with Dynamic::Static.");
  }

  std::shared_ptr<DifferentiableBackward> make() const {
    const runtime::CheckpointPause unseen;
    std::vector<at::Tensor> captured;
    for (const observe::WeakTensor& one : captured_) captured.push_back(observe::lock(one));
    const Graph graph = at_sizes(general_->graph, sizes_);
    std::unique_ptr<tracing::DifferentiableTrace> trace;
    {
      const AutocastScope autocast(ambient_.autocast);
      const at::AutoGradMode grad_mode(ambient_.grad_mode);
      trace =
          tracing::DifferentiableTrace::make(function_, inputs_, graph, captured);
    }
    if (trace == nullptr) return nullptr;
    return make_open_trace_gradient(std::move(trace), graph, general_->joint, general_->halves,
                                    general_->compiler, general_->autocast, &general_->needs);
  }

  const std::shared_ptr<const General> general_;
  const std::vector<int64_t> sizes_;
  const aot::FlatFunction function_;
  const std::vector<at::Tensor> inputs_;  ///< those that stand for them
  const std::vector<observe::WeakTensor> captured_;
  const Ambient ambient_ = Ambient::current();
  std::mutex mutex_;
  std::shared_ptr<DifferentiableBackward> made_;
};

}  // namespace

SizedOpenTraces::SizedOpenTraces(Graph graph, const JointGraph& joint, PartitionedGraphs halves,
                                 aot::GraphCompiler compiler,
                                 std::optional<AutocastState> autocast) {
  std::vector<runtime::DifferentiableBackward::Need> needs = open_trace_needs(joint, halves);
  general_ = std::make_shared<const General>(General{std::move(graph), joint, std::move(halves),
                                                     std::move(compiler), std::move(autocast),
                                                     std::move(needs)});
}

std::shared_ptr<runtime::DifferentiableBackward> SizedOpenTraces::at(
    const std::vector<int64_t>& sizes, const aot::FlatFunction& function,
    const std::vector<at::Tensor>& inputs, std::vector<observe::WeakTensor> captured) const {
  return std::make_shared<OpenTraceAtSizes<General>>(general_, sizes, function, inputs,
                                                     std::move(captured));
}

}  // namespace ahead::compiling
