#include <ATen/EmptyTensor.h>
#include <ATen/FunctionalStorageImpl.h>
#include <ATen/MemoryOverlap.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>

#include "ahead/errors.h"
#include "tensors/overlap.h"
#include "trace/analysis/function_meta.h"
#include "trace/analysis/result_sorter.h"
#include "trace/dispatch/real_shapes.h"
#include "trace/tensor/functional.h"

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

/// Whether resize_() gave a tensor from outside more elements than its memory had room for.
bool is_grown(const Lifted& lifted) {
  return has_other_memory(lifted) && !functional_wrapper(lifted.wrapper).was_storage_changed();
}

bool grows_anything(const Graph& graph) {
  static const Operator* const resize = Operator::find("aten.resize");
  for (const Node& node : graph.nodes()) {
    const bool grows =
        &node.op() == resize && node.args()[0].is_value() &&
        node.result()->meta.numel().fixed() > node.args()[0].value()->meta.numel().fixed();
    if (grows) return true;
  }
  return false;
}

/// Two tensors from outside that share memory are traced as if they did not, which is only right as
/// long as none of them is written to.
void check_not_aliased(const Outside& outside, size_t mutated) {
  const at::Tensor& real = outside.lifted()[mutated].real;
  for (size_t i = 0; i < outside.lifted().size(); ++i) {
    const at::Tensor& other = outside.lifted()[i].real;
    if (i == mutated || !overlap(other, real)) continue;
    throw AliasedWrite("trace", TensorMeta::of(real).str() +
                                    ": the function writes to this tensor, and " +
                                    TensorMeta::of(other).str() +
                                    ", which it uses too, shares its memory. Pass one of them and "
                                    "take the other as a view of it.");
  }
}

/// Finds out what a function returned, and what it did to the tensors from outside: what they hold,
/// how they look, and whether they require grad.
class Analysis {
 public:
  Analysis(OpenTrace& open, bool is_sorted)
      : open_(open), writer_(open.writer()), outside_(open.outside()) {
    meta_.is_sorted = is_sorted;
    meta_.grad_mode_after = at::GradMode::is_enabled();
  }

  FunctionMeta run() {
    const std::vector<at::Tensor> results = open_.take_results();
    add_mutated_inputs();
    if (meta_.is_sorted) {
      sort(results);
    } else {
      list(results);
    }
    return std::move(meta_);
  }

 private:
  void add_mutated_inputs();
  void check_geometry(const Lifted& lifted);
  bool can_be_set(const Lifted& lifted) const;
  bool can_grow(const Lifted& lifted) const;
  static void check_not_overlapping(const Lifted& mutated);
  bool is_history_changed(const Lifted& lifted) const;
  void list(const std::vector<at::Tensor>& results);
  void sort(const std::vector<at::Tensor>& results);
  void describe_inputs();
  void note_requires_grad(Lifted& lifted, InputFacts& facts);
  void add_new_memory(const ResultFacts& facts, const Value* input, size_t index);
  void add_output(const at::Tensor& tensor, Slot slot, bool has_tangent);

  OpenTrace& open_;
  GraphWriter& writer_;
  Outside& outside_;
  FunctionMeta meta_;
};

void Analysis::add_output(const at::Tensor& tensor, Slot slot, bool has_tangent) {
  const at::Tensor traced = open_.add_output(tensor, slot);
  if (!traced.defined() || !has_tangent || !open_.options().joint) return;
  const auto position = static_cast<int32_t>(writer_.graph().outputs().size() - 1);
  meta_.differentiable.push_back({traced, position});
}

void Analysis::add_mutated_inputs() {
  for (size_t i = 0; i < outside_.lifted().size(); ++i) {
    const Lifted& lifted = outside_.lifted()[i];
    at::FunctionalTensorWrapper& wrapper = functional_wrapper(lifted.wrapper);
    check_geometry(lifted);
    meta_.mutation_counts.push_back(wrapper.mutation_counter());
    if (has_other_memory(lifted) || !wrapper.has_data_mutation()) continue;
    check_not_overlapping(lifted);
    check_not_aliased(outside_, i);
    const Slot slot{Slot::Kind::MutatedInput, static_cast<int32_t>(lifted.value->index())};
    const bool has_tangent =
        meta_.is_sorted ? is_history_changed(lifted) : lifted.wrapper.requires_grad();
    add_output(lifted.wrapper, slot, has_tangent);
  }
}

/// A graph can only tell of new contents; a compiled function can give a tensor new sizes and
/// strides too, and the memory of another tensor.
void Analysis::check_geometry(const Lifted& lifted) {
  if (has_other_memory(lifted) && meta_.is_sorted &&
      (is_grown(lifted) ? can_grow(lifted) : can_be_set(lifted)))
    return;
  const bool is_reshaped = tracing::is_reshaped(lifted);
  const bool fits = !is_reshaped || fits_storage(lifted.wrapper, lifted.real);
  if (!has_other_memory(lifted) && fits && (meta_.is_sorted || !is_reshaped)) return;
  throw ReshapedInput(
      "trace", lifted.value->meta.str() +
                   ": the function changes the shape or the storage of a tensor from outside "
                   "(set_, resize_, transpose_ and the like). Work on a view instead.");
}

/// Whether set_() on the real tensor does what the function did: the memory it had before was not
/// written to, nothing grew, and autograd did not see it.
bool Analysis::can_be_set(const Lifted& lifted) const {
  auto* before = static_cast<at::functionalization::FunctionalStorageImpl*>(
      lifted.memory._unsafe_get_target());
  return functional_wrapper(lifted.wrapper).was_storage_changed() &&
         before->mutation_counter() == 0 && !is_history_changed(lifted) &&
         (!lifted.wrapper.requires_grad() || lifted.wrapper.sizes() == lifted.real.sizes()) &&
         !grows_anything(writer_.graph());
}

/// Whether resize_() on the real tensor, and then writing to it, does what the function did: it was
/// not written to before, autograd knows nothing of it, and nobody else has its memory.
bool Analysis::can_grow(const Lifted& lifted) const {
  auto* before = static_cast<at::functionalization::FunctionalStorageImpl*>(
      lifted.memory._unsafe_get_target());
  const bool is_alone =
      std::none_of(outside_.lifted().begin(), outside_.lifted().end(), [&](const Lifted& other) {
        return &other != &lifted && other.real.is_alias_of(lifted.real);
      });
  return is_alone && before->mutation_counter() == 0 && !lifted.wrapper.requires_grad() &&
         !lifted.real.requires_grad() && !lifted.real.is_inference() &&
         lifted.wrapper.is_contiguous() && lifted.wrapper.storage_offset() == 0 &&
         lifted.real.storage_offset() == 0;
}

void Analysis::check_not_overlapping(const Lifted& mutated) {
  if (at::has_internal_overlap(mutated.real) != at::MemOverlap::Yes) return;
  throw Unsupported("trace", mutated.value->meta.str() +
                                 ": the function writes to this tensor from outside, several "
                                 "elements of which are the same memory. Clone it first.");
}

/// What was written under no_grad leaves a tensor with the history it had. A view takes over that
/// of its base after every write.
bool Analysis::is_history_changed(const Lifted& lifted) const {
  namespace impl = torch::autograd::impl;
  if (!lifted.wrapper.requires_grad()) return false;
  const auto* view = impl::get_view_autograd_meta(lifted.wrapper);
  const bool is_view = view != nullptr && view->has_bw_view();
  const at::Tensor owner = is_view ? at::Tensor(lifted.wrapper._base()) : lifted.wrapper;
  return impl::gradient_edge(owner).function != lifted.node;
}

void Analysis::list(const std::vector<at::Tensor>& results) {
  for (size_t i = 0; i < results.size(); ++i) {
    const bool is_real = results[i].defined() && !is_traced(results[i]);
    const at::Tensor& traced = is_real ? outside_.lift(results[i]) : results[i];
    add_output(traced, {Slot::Kind::Output, static_cast<int32_t>(i)},
               traced.defined() && traced.requires_grad());
  }
}

void Analysis::sort(const std::vector<at::Tensor>& results) {
  const ResultSorter sorter(outside_, results);
  describe_inputs();
  meta_.results = sorter.facts();
  meta_.result_inputs.resize(meta_.results.size());
  using Kind = ResultFacts::Kind;
  for (size_t i = 0; i < meta_.results.size(); ++i) {
    ResultFacts& facts = meta_.results[i];
    if (facts.kind != Kind::Input && facts.requires_grad && facts.is_leaf && i < results.size()) {
      meta_.returned_leaves.insert(sorter.traced(i).unsafeGetTensorImpl());
    }
    if (facts.kind == Kind::Input || facts.kind == Kind::ViewOfInput ||
        facts.kind == Kind::CustomView) {
      meta_.result_inputs[i] = outside_.lifted()[static_cast<size_t>(facts.base)].value;
    }
    if (i >= results.size()) {
      add_new_memory(facts, outside_.lifted()[sorter.reset()[i - results.size()]].value, i);
    } else if (facts.kind == Kind::Fresh || facts.kind == Kind::CustomView) {
      add_output(sorter.traced(i), {Slot::Kind::Output, static_cast<int32_t>(i)},
                 facts.requires_grad && !facts.is_leaf);
    }
  }
  for (size_t i = 0; i < sorter.bases().size(); ++i) {
    const auto& [tensor, value] = sorter.bases()[i];
    const Slot slot{Slot::Kind::IntermediateBase, static_cast<int32_t>(i)};
    if (tensor.defined() && tensor.requires_grad()) {
      add_output(tensor, slot, /*has_tangent=*/true);
    } else {
      writer_.graph().add_output(value, slot);
    }
  }
}

void Analysis::describe_inputs() {
  for (Lifted& lifted : outside_.lifted()) {
    InputFacts& facts = meta_.inputs[lifted.value];
    at::FunctionalTensorWrapper& wrapper = functional_wrapper(lifted.wrapper);
    const bool is_reshaped = tracing::is_reshaped(lifted);
    if (is_reshaped) facts.new_geometry = geometry_of(lifted);
    const bool is_changed = is_reshaped || has_other_memory(lifted) || wrapper.has_data_mutation();
    // A change of shape of a view counts as well.
    const auto version = static_cast<uint64_t>(
        lifted.wrapper.is_inference() ? (is_changed ? 1 : 0) : lifted.wrapper._version());
    facts.writes = version + (is_changed ? open_.tracer()->list_writes().count(lifted.wrapper) : 0);
    if (is_changed) facts.seen_by_autograd = is_history_changed(lifted);
    if (is_reshaped && facts.seen_by_autograd && !wrapper.has_data_mutation())
      check_one_history(lifted);
    note_requires_grad(lifted, facts);
  }
}

void Analysis::note_requires_grad(Lifted& lifted, InputFacts& facts) {
  const bool before = lifted.real.requires_grad(), after = lifted.wrapper.requires_grad();
  if (before == after || (after && facts.seen_by_autograd)) return;
  if (!lifted.wrapper.is_leaf() || !lifted.real.is_leaf()) {
    throw Unsupported("trace", TensorMeta::of(lifted.real).str() +
                                   ": the function cuts the history of this tensor from outside. "
                                   "Call detach_() outside.");
  }
  facts.new_requires_grad = after;
  if (after && open_.options().joint) {
    lifted.link = GradLink::OwnLeaf;
    lifted.node = torch::autograd::impl::grad_accumulator(lifted.wrapper);
  }
}

/// The memory that set_() gave an input is like one more result.
void Analysis::add_new_memory(const ResultFacts& facts, const Value* input, size_t index) {
  const auto position = static_cast<int32_t>(index);
  const auto& all = outside_.lifted();
  const auto lifted =
      std::find_if(all.begin(), all.end(), [&](const Lifted& one) { return one.value == input; });
  const bool grows = is_grown(*lifted);
  if (grows && facts.kind != ResultFacts::Kind::Fresh) {
    throw Unsupported("trace", input->meta.str() +
                                   ": the function makes this tensor larger (resize_) and returns "
                                   "another one with its memory. Return a clone.");
  }
  meta_.inputs[input].new_memory = {position, facts, grows};
  meta_.reset_inputs.push_back(input);
  if (facts.kind == ResultFacts::Kind::Fresh)
    writer_.graph().add_output(facts.value, {Slot::Kind::Output, position});
}

}  // namespace

FunctionMeta analyse(OpenTrace& open) {
  return Analysis(open, /*is_sorted=*/true).run();
}

FunctionMeta list_results(OpenTrace& open) {
  return Analysis(open, /*is_sorted=*/false).run();
}

void check_no_aliased_writes(const Outside& outside) {
  for (size_t i = 0; i < outside.lifted().size(); ++i) {
    const Lifted& lifted = outside.lifted()[i];
    if (!has_other_memory(lifted) && functional_wrapper(lifted.wrapper).has_data_mutation())
      check_not_aliased(outside, i);
  }
}

}  // namespace ahead::tracing
