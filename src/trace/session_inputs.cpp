#include <ATen/EmptyTensor.h>
#include <ATen/FunctionalStorageImpl.h>
#include <ATen/MemoryOverlap.h>
#include <torch/csrc/autograd/variable.h>

#include "ahead/errors.h"
#include "tensors/overlap.h"
#include "trace/dispatch/real_shapes.h"
#include "trace/session.h"
#include "trace/tensor/functional.h"

/// What a function did to the tensors from outside: what they hold, how they look, and whether they
/// require grad.
namespace ahead::tracing {
namespace {

/// Whether a tensor's memory is enough for the shape of another one.
bool fits_storage(const at::Tensor& shape, const at::Tensor& tensor) {
  const size_t needed =
      at::detail::computeStorageNbytes(shape.sizes(), shape.strides(), shape.itemsize(),
                                       static_cast<size_t>(shape.storage_offset()));
  return needed <= tensor.storage().nbytes();
}

/// Whether a tensor from outside got other sizes or strides, or was set to what it was.
bool is_reshaped(const Lifted& lifted) {
  at::FunctionalTensorWrapper& wrapper = functional_wrapper(lifted.wrapper);
  return !has_other_memory(lifted) &&
         (wrapper.has_metadata_mutation() || wrapper.was_storage_changed());
}

bool has_node(const Graph& graph, std::string_view op) {
  for (const Node& node : graph.nodes()) {
    if (node.op().name() == op) return true;
  }
  return false;
}

}  // namespace

/// set_() and resize_() give a leaf another accumulator.
void Session::find_new_accumulators() {
  for (Lifted& lifted : outside_.lifted()) {
    if (lifted.link == GradLink::None || lifted.link == GradLink::Boundary) continue;
    if (!lifted.wrapper.is_leaf() || !lifted.wrapper.requires_grad()) continue;
    const NodePtr now = torch::autograd::impl::grad_accumulator(lifted.wrapper);
    if (now == lifted.node) continue;
    old_accumulators_.push_back(std::exchange(lifted.node, now));
  }
}

void Session::check_accumulator(const torch::autograd::Node& node) const {
  for (const NodePtr& old : old_accumulators_) {
    if (old.get() != &node) continue;
    throw Unsupported("trace",
                      "set_: a leaf from outside is used before set_() or resize_(), and its "
                      "gradient would have two parts. Detach it before one of them.");
  }
}

void Session::add_mutated_inputs() {
  for (size_t i = 0; i < outside_.lifted().size(); ++i) {
    const Lifted& lifted = outside_.lifted()[i];
    at::FunctionalTensorWrapper& wrapper = functional_wrapper(lifted.wrapper);
    check_geometry(lifted);
    mutation_counts_.push_back(wrapper.mutation_counter());
    if (has_other_memory(lifted) || !wrapper.has_data_mutation()) continue;
    check_not_overlapping(lifted);
    check_not_aliased(i);
    const Slot slot{Slot::Kind::MutatedInput, static_cast<int32_t>(lifted.value->index())};
    const bool has_tangent =
        with_facts_ ? is_history_changed(lifted) : lifted.wrapper.requires_grad();
    add_output(lifted.wrapper, slot, has_tangent);
  }
}

/// A graph can only tell of new contents; a compiled function can give a tensor new sizes and
/// strides too, and the memory of another tensor.
void Session::check_geometry(const Lifted& lifted) {
  if (has_other_memory(lifted) && with_facts_ && can_be_set(lifted)) return;
  const bool is_reshaped = tracing::is_reshaped(lifted);
  const bool fits = !is_reshaped || fits_storage(lifted.wrapper, lifted.real);
  if (!has_other_memory(lifted) && fits && (with_facts_ || !is_reshaped)) return;
  throw Unsupported("trace",
                    lifted.value->meta.str() +
                        ": the function changes the shape or the storage of a tensor from outside "
                        "(set_, resize_, transpose_ and the like). Work on a view instead.");
}

/// Whether set_() on the real tensor does what the function did: the memory it had before was not
/// written to, nothing was resized, and autograd did not see it.
bool Session::can_be_set(const Lifted& lifted) const {
  auto* before = static_cast<at::functionalization::FunctionalStorageImpl*>(
      lifted.memory._unsafe_get_target());
  return functional_wrapper(lifted.wrapper).was_storage_changed() &&
         before->mutation_counter() == 0 && !is_history_changed(lifted) &&
         (!lifted.wrapper.requires_grad() || lifted.wrapper.sizes() == lifted.real.sizes()) &&
         !has_node(writer_.graph(), "aten.resize");
}

void Session::check_not_overlapping(const Lifted& mutated) {
  if (at::has_internal_overlap(mutated.real) != at::MemOverlap::Yes) return;
  throw Unsupported("trace", mutated.value->meta.str() +
                                 ": the function writes to this tensor from outside, several "
                                 "elements of which are the same memory. Clone it first.");
}

/// Two tensors from outside that share memory are traced as if they did not, which is only right as
/// long as none of them is written to.
void Session::check_not_aliased(size_t mutated) const {
  const at::Tensor& real = outside_.lifted()[mutated].real;
  for (size_t i = 0; i < outside_.lifted().size(); ++i) {
    const at::Tensor& other = outside_.lifted()[i].real;
    if (i == mutated || !overlap(other, real)) continue;
    throw AliasedWrite("trace", TensorMeta::of(real).str() +
                                    ": the function writes to this tensor, and " +
                                    TensorMeta::of(other).str() +
                                    ", which it uses too, shares its memory. Pass one of them and "
                                    "take the other as a view of it.");
  }
}

/// An error may come of tracing tensors that share memory as if they did not.
void Session::check_no_aliased_writes() const {
  for (size_t i = 0; i < outside_.lifted().size(); ++i) {
    const Lifted& lifted = outside_.lifted()[i];
    if (!has_other_memory(lifted) && functional_wrapper(lifted.wrapper).has_data_mutation())
      check_not_aliased(i);
  }
}

/// What was written under no_grad leaves a tensor with the history it had. A view takes over that
/// of its base after every write.
bool Session::is_history_changed(const Lifted& lifted) const {
  namespace impl = torch::autograd::impl;
  if (!lifted.wrapper.requires_grad()) return false;
  const auto* view = impl::get_view_autograd_meta(lifted.wrapper);
  const bool is_view = view != nullptr && view->has_bw_view();
  const at::Tensor owner = is_view ? at::Tensor(lifted.wrapper._base()) : lifted.wrapper;
  return impl::gradient_edge(owner).function != lifted.node;
}

/// The memory that set_() gave an input is like one more result.
void Session::add_new_memory(const ResultFacts& facts, const Value* input, size_t index) {
  const auto position = static_cast<int32_t>(index);
  input_facts_[input].new_memory = {position, facts};
  reset_inputs_.push_back(input);
  if (facts.kind == ResultFacts::Kind::Fresh)
    writer_.graph().add_output(facts.value, {Slot::Kind::Output, position});
}

void Session::describe_inputs() {
  for (Lifted& lifted : outside_.lifted()) {
    InputFacts& facts = input_facts_[lifted.value];
    at::FunctionalTensorWrapper& wrapper = functional_wrapper(lifted.wrapper);
    const bool is_reshaped = tracing::is_reshaped(lifted);
    if (is_reshaped) facts.new_geometry = geometry_of(lifted);
    const bool is_changed = is_reshaped || has_other_memory(lifted) || wrapper.has_data_mutation();
    // A change of shape of a view counts as well.
    const auto version = static_cast<uint64_t>(
        lifted.wrapper.is_inference() ? (is_changed ? 1 : 0) : lifted.wrapper._version());
    facts.writes = version + (is_changed ? tracer_.list_writes().count(lifted.wrapper) : 0);
    if (is_changed) facts.seen_by_autograd = is_history_changed(lifted);
    if (is_reshaped && facts.seen_by_autograd && !wrapper.has_data_mutation())
      check_one_history(lifted);
    note_requires_grad(lifted, facts);
  }
}

void Session::note_requires_grad(Lifted& lifted, InputFacts& facts) {
  const bool before = lifted.real.requires_grad(), after = lifted.wrapper.requires_grad();
  if (before == after || (after && facts.seen_by_autograd)) return;
  if (!lifted.wrapper.is_leaf() || !lifted.real.is_leaf()) {
    throw Unsupported("trace", TensorMeta::of(lifted.real).str() +
                                   ": the function cuts the history of this tensor from outside. "
                                   "Call detach_() outside.");
  }
  facts.new_requires_grad = after;
  if (after && joint_) {
    lifted.link = GradLink::OwnLeaf;
    lifted.node = torch::autograd::impl::grad_accumulator(lifted.wrapper);
  }
}

}  // namespace ahead::tracing
