#include "trace/backward_writes.h"

#include <ATen/MemoryOverlap.h>
#include <torch/csrc/autograd/function_hook.h>

#include <algorithm>
#include <utility>

#include "ahead/errors.h"
#include "ops/facts/aliasing.h"
#include "tensors/autograd_graph.h"
#include "tensors/overlap.h"
#include "trace/tensor/fake_tensor.h"
#include "trace/tensor/functional.h"

namespace ahead::tracing {
namespace {

uint64_t writes_to(const at::Tensor& traced) {
  return functional_wrapper(traced).mutation_counter();
}

[[noreturn]] void refuse_write(const TensorMeta& meta, const std::string& why) {
  throw Unsupported(
      "trace", meta.str() + ": the backward (a custom function) writes to this tensor, " + why);
}

/// Whether a tensor from outside got another shape or other memory since the forward.
bool is_reshaped_since(const Lifted& lifted, const InputFacts& facts) {
  if (facts.new_memory || facts.new_geometry) return false;
  at::FunctionalTensorWrapper& wrapper = functional_wrapper(lifted.wrapper);
  return has_other_memory(lifted) || wrapper.has_metadata_mutation() ||
         wrapper.was_storage_changed();
}

void check_repeatable(const Outside& outside, size_t index, const InputFacts& facts) {
  const Lifted& lifted = outside.lifted()[index];
  const TensorMeta& meta = lifted.value->meta;
  if (facts.new_memory || facts.new_geometry)
    refuse_write(meta, "whose shape or memory the function changes. Clone it first.");
  if (lifted.real.is_inference())
    refuse_write(meta, "which was made in inference mode. Make it outside of that.");
  if (at::has_internal_overlap(lifted.real) == at::MemOverlap::Yes)
    refuse_write(meta, "several elements of which are the same memory. Clone it first.");
  if (lifted.wrapper.requires_grad() && lifted.link == GradLink::None && !facts.seen_by_autograd)
    refuse_write(meta, "and autograd would have to see that. Write to it in no_grad mode.");
  for (size_t i = 0; i < outside.lifted().size(); ++i) {
    if (i == index || !overlap(outside.lifted()[i].real, lifted.real)) continue;
    refuse_write(meta, "which shares its memory with another one. Pass one of them.");
  }
}

}  // namespace

bool is_from_outside(const Outside& outside, const at::Tensor& traced) {
  const c10::StorageImpl* memory = functional_memory(traced);
  return std::any_of(outside.lifted().begin(), outside.lifted().end(), [&](const Lifted& lifted) {
    return lifted.memory._unsafe_get_target() == memory;
  });
}

Node* add_backward_write(Graph& graph, Value* input, Value* contents) {
  static const Operator* const copy = Operator::find("aten.copy_");
  static const Operator* const clone = Operator::find("aten.clone");
  const Node* maker = contents->producer();
  const auto count_as_made = [&](Node* node) {
    if (maker != nullptr) node->belong_to(*maker);
    node->phase = Phase::Backward;
    node->set(Tag::NoGrad);
  };
  // Another input might be overwritten before it is copied from.
  const ops::Aliasing aliasing(graph);
  const bool is_shared =
      std::any_of(graph.inputs().begin(), graph.inputs().end(), [&](const Graph::Input& other) {
        return aliasing.group(other.value) == aliasing.group(contents);
      });
  if (is_shared) {
    Node* copied = graph.add_node(*clone, {contents, c10::IValue()});
    count_as_made(copied);
    contents = graph.add_return(copied, contents->meta);
  }
  Node* node = graph.add_node(*copy, {input, contents, false});
  graph.add_return(node, std::nullopt);
  graph.add_return(node, input->meta);
  count_as_made(node);
  node->set(Tag::Effect);
  node->set(Tag::MustBeInBackward);
  return node;
}

void BackwardWrites::Watched::assign(const std::vector<at::Tensor>& traced) {
  for (size_t i = tensors.size(); i < traced.size(); ++i) {
    tensors.push_back(traced[i]);
    counts.push_back(writes_to(traced[i]));
    writers.emplace_back();
  }
}

void BackwardWrites::Watched::note(size_t node) {
  for (size_t i = 0; i < tensors.size(); ++i) {
    const uint64_t now = writes_to(tensors[i]);
    if (std::exchange(counts[i], now) != now) writers[i].push_back(node);
  }
}

/// Looks what was written to, when a node has run.
class BackwardWrites::Hook final : public torch::autograd::FunctionPostHook {
 public:
  Hook(BackwardWrites& writes, size_t node) : writes_(writes), node_(node) {}

  torch::autograd::variable_list operator()(const torch::autograd::variable_list& outputs,
                                            const torch::autograd::variable_list& inputs) override {
    writes_.note(node_);
    writes_.check_given(node_, inputs);
    return outputs;
  }

 private:
  BackwardWrites& writes_;
  const size_t node_;
};

/// Looks at the gradients that a node is given, before it runs.
class BackwardWrites::GivenHook final : public torch::autograd::FunctionPreHook {
 public:
  GivenHook(BackwardWrites& writes, size_t node) : writes_(writes), node_(node) {}

  torch::autograd::variable_list operator()(
      const torch::autograd::variable_list& gradients) override {
    writes_.note_given(node_, gradients);
    return gradients;
  }

 private:
  BackwardWrites& writes_;
  const size_t node_;
};

void BackwardWrites::watch(torch::autograd::Node& node) {
  node.add_pre_hook(std::make_unique<GivenHook>(*this, nodes_.size()));
  given_.emplace_back();
  node.add_post_hook(std::make_unique<Hook>(*this, nodes_.size()));
  nodes_.push_back(node.getptr());
}

/// Tensors that the backward met first are new here, and were not written to before it.
void BackwardWrites::note(size_t node) {
  const std::vector<Lifted>& lifted = open_.outside().lifted();
  for (size_t i = inputs_.tensors.size(); i < lifted.size(); ++i) {
    inputs_.tensors.push_back(lifted[i].wrapper);
    inputs_.counts.push_back(i < meta_.mutation_counts.size() ? meta_.mutation_counts[i] : 0);
    inputs_.writers.emplace_back();
  }
  inputs_.note(node);
  tangents_.note(node);
}

void BackwardWrites::note_given(size_t node, const torch::autograd::variable_list& gradients) {
  for (size_t i = 0; i < gradients.size() && tangents_.tensors.size() > 1; ++i) {
    if (gradients[i].defined() && is_traced(gradients[i]))
      given_[node].push_back({i, writes_to(gradients[i]), value_of(gradients[i])});
  }
}

/// A sum is new memory. But if only one of the results is differentiated, eager may add nothing up,
/// and the write is one to the caller's tangent, or to what others were given as well.
void BackwardWrites::check_given(size_t node,
                                 const torch::autograd::variable_list& gradients) const {
  for (const Given& given : given_[node]) {
    const at::Tensor& gradient = gradients[given.position];
    if (writes_to(gradient) == given.count) continue;
    if (is_sum_with_tangent(given.value)) {
      refuse_write(TensorMeta::of(gradient),
                   "the gradient of a result from which another result was computed. Clone the "
                   "gradient first.");
    }
    if (is_added_to_others(given.value)) {
      refuse_write(TensorMeta::of(gradient),
                   "a gradient that others get as well: whether these find the write depends on "
                   "which results are differentiated. Clone the gradient first.");
    }
  }
}

/// Whether a gradient is the sum of several, one of which is a tangent or a view of one.
bool BackwardWrites::is_sum_with_tangent(const Value* gradient) const {
  static const Operator* const add = Operator::find("aten.add.Tensor");
  std::vector<const Value*> parts;
  const auto add_parts = [&](const Value* value) {
    const Node* sum = value->producer();
    if (sum == nullptr || &sum->op() != add) return false;
    sum->for_each_operand([&](const Value* part) { parts.push_back(part); });
    return true;
  };
  if (!add_parts(gradient)) return false;
  const ops::Aliasing aliasing(open_.graph());
  for (size_t i = 0; i < parts.size(); ++i) {
    if (add_parts(parts[i])) continue;
    for (const Graph::Input& input : open_.graph().inputs()) {
      if (input.slot.kind == Slot::Kind::Tangent &&
          aliasing.group(input.value) == aliasing.group(parts[i]))
        return true;
    }
  }
  return false;
}

/// Whether a gradient, or a view of it, was added to another one so far.
bool BackwardWrites::is_added_to_others(const Value* gradient) const {
  static const Operator* const add = Operator::find("aten.add.Tensor");
  const ops::Aliasing aliasing(open_.graph());
  bool is_added = false;
  for (const Node& node : open_.graph().nodes()) {
    if (node.phase != Phase::Backward || &node.op() != add) continue;
    node.for_each_operand([&](const Value* part) {
      is_added |= aliasing.group(part) == aliasing.group(gradient);
    });
  }
  return is_added;
}

void BackwardWrites::record(const torch::autograd::edge_list& targets, JointTrace& trace) {
  for (size_t i = 0; i < tangents_.tensors.size(); ++i) record_tangent(i, trace);
  for (size_t i = 0; i < open_.outside().lifted().size(); ++i) record_input(i, trace);
  if (!trace.has_backward_writes()) return;
  torch::autograd::edge_list watched;
  for (const NodePtr& node : nodes_) watched.emplace_back(node, 0);
  const std::vector<std::vector<bool>> leading = roots_leading_to(targets, watched);
  for (size_t i = 0; i < nodes_.size(); ++i) {
    std::vector<bool>& leads_to = trace.gradients_behind[sequence_of(i)];
    for (const std::vector<bool>& target : leading) leads_to.push_back(target[i]);
  }
}

void BackwardWrites::record_input(size_t index, JointTrace& trace) {
  const Lifted& lifted = open_.outside().lifted()[index];
  const InputFacts& facts = meta_.inputs[lifted.value];
  const uint64_t before = index < meta_.mutation_counts.size() ? meta_.mutation_counts[index] : 0;
  if (is_reshaped_since(lifted, facts)) {
    throw Unsupported("trace",
                      lifted.value->meta.str() +
                          ": Found a graph input that had its metadata mutated in the backward. "
                          "This is not supported. Change its shape or its memory in the forward.");
  }
  if (writes_to(lifted.wrapper) == before) return;
  check_repeatable(open_.outside(), index, facts);
  const int64_t output = open_.graph().find_output(
      {Slot::Kind::MutatedInput, static_cast<int32_t>(lifted.value->index())});
  const Value* current =
      output < 0 ? lifted.value : open_.graph().outputs()[static_cast<size_t>(output)].value;
  InputFacts::BackwardWrite write;
  write.version_bumps = version_of(lifted.wrapper) - facts.writes;
  write.is_checked = is_read_by_formula(current);
  const std::vector<size_t>& writers = inputs_.writers.at(index);
  add_write(lifted.value, lifted.wrapper, writers);
  meta_.inputs[lifted.value].backward_write = write;
  trace.writes_to_inputs = true;
}

void BackwardWrites::record_tangent(size_t index, JointTrace& trace) {
  const at::Tensor& tangent = tangents_.tensors[index];
  at::FunctionalTensorWrapper& wrapper = functional_wrapper(tangent);
  if (wrapper.has_metadata_mutation() || wrapper.was_storage_changed()) {
    throw Unsupported("trace", TensorMeta::of(tangent).str() +
                                   ": Found an input to the backward that had metadata mutated "
                                   "during the backward pass. This is not supported. Use a view "
                                   "of the other shape.");
  }
  if (!wrapper.has_data_mutation()) return;
  if (tangent.requires_grad()) {
    refuse_write(TensorMeta::of(tangent),
                 "a gradient that comes in, and autograd would have to see that. Write to it in "
                 "no_grad mode.");
  }
  Graph& graph = open_.graph();
  size_t next = 0;
  for (size_t i = 0; i < graph.inputs().size(); ++i) {
    if (graph.inputs()[i].slot.kind != Slot::Kind::Tangent || next++ != index) continue;
    add_write(graph.inputs()[i].value, tangent, tangents_.writers[index]);
    trace.tangent_writes.push_back({static_cast<int32_t>(index), version_of(tangent)});
    return;
  }
}

/// A write by one node, whose contents no other node reads, is left out where that node does not
/// run. Of others nobody knows what they would be then.
Node& BackwardWrites::add_write(Value* input, const at::Tensor& traced,
                                const std::vector<size_t>& writers) {
  Value* contents = value_of(traced);
  Node& write = *add_backward_write(open_.graph(), input, contents);
  const bool is_by_one = !writers.empty() && std::all_of(writers.begin(), writers.end(),
                                                         [&](size_t i) { return i == writers[0]; });
  const int64_t writer = is_by_one ? sequence_of(writers[0]) : -1;
  const auto is_of_writer = [&](const Node* user) {
    return user == &write || user->sequence == writer || user->op().name() == "aten.clone";
  };
  const bool is_known =
      is_by_one && std::all_of(contents->users().begin(), contents->users().end(), is_of_writer);
  write.sequence = is_known ? writer : -1;
  return write;
}

uint64_t BackwardWrites::version_of(const at::Tensor& traced) const {
  return static_cast<uint64_t>(traced._version()) + open_.tracer()->list_writes().count(traced);
}

int64_t BackwardWrites::sequence_of(size_t node) const {
  return static_cast<int64_t>(nodes_[node]->sequence_nr() - open_.writer().first_sequence());
}

bool BackwardWrites::is_formula(const Node& node) const {
  if (node.phase != Phase::Backward || node.has(Tag::MustBeInBackward)) return false;
  for (size_t i = 0; i < nodes_.size(); ++i) {
    if (node.sequence == sequence_of(i)) return false;
  }
  return true;
}

/// Whether a gradient formula reads what is in a tensor when the forward has run. Eager's would
/// have saved the tensor, and would complain about a write since then.
bool BackwardWrites::is_read_by_formula(const Value* current) const {
  const ops::Aliasing aliasing(open_.graph());
  const uint32_t memory = aliasing.group(current);
  for (const Node& node : open_.graph().nodes()) {
    if (!is_formula(node)) continue;
    bool reads = false;
    node.for_each_operand([&](const Value* value) { reads |= aliasing.group(value) == memory; });
    if (reads) return true;
  }
  return false;
}

}  // namespace ahead::tracing
