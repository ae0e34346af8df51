#include "trace/observers/places.h"

#include <ATen/SequenceNumber.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>

#include <algorithm>

#include "base/user_place.h"
#include "tensors/autograd_graph.h"

namespace ahead::tracing {

void Places::look() {
  pass(user_place());
}

void Places::pass(const std::string* place) {
  current_ = place;
  if (passed_.empty() || passed_.back().second != place)
    passed_.emplace_back(at::sequence_number::peek(), place);
}

class Places::Hook final : public torch::autograd::FunctionPostHook {
 public:
  Hook(Places& places, uint64_t sequence) : places_(places), sequence_(sequence) {}

  torch::autograd::variable_list operator()(const torch::autograd::variable_list& outputs,
                                            const torch::autograd::variable_list&) override {
    places_.finished_ = sequence_;
    return outputs;
  }

 private:
  Places& places_;
  const uint64_t sequence_;
};

/// Accumulators, which have no edges, may be those of tensors from outside.
void Places::watch(const torch::autograd::edge_list& roots) {
  for_each_node(roots, [&](torch::autograd::Node& node) {
    if (!node.next_edges().empty())
      node.add_post_hook(std::make_unique<Hook>(*this, node.sequence_nr()));
  });
}

void Places::find(Node& node, uint64_t sequence) {
  static const Operator* const add = Operator::find("aten.add.Tensor");
  if (node.phase == Phase::Forward) {
    node.place = current_;
  } else if (&node.op() == add && (node.provenance == nullptr || sequence == finished_)) {
    node.set(Tag::GradientAccumulation);
  } else if (node.provenance != nullptr) {
    node.place = of(sequence);
  }
}

const std::string* Places::of(uint64_t sequence) const {
  const auto after =
      std::upper_bound(passed_.begin(), passed_.end(), sequence,
                       [](uint64_t number, const auto& passed) { return number < passed.first; });
  return after == passed_.begin() ? nullptr : std::prev(after)->second;
}

}  // namespace ahead::tracing
