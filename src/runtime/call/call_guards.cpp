#include "runtime/call/call_guards.h"

#include <c10/core/RefcountedDeleter.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>

#include "runtime/call/base_of.h"
#include "tensors/ancestry.h"
#include "tensors/forward_mode.h"
#include "tensors/overlap.h"

namespace ahead::runtime {
namespace {

/// A graph input. For a synthetic base, which would have to be made, its first argument.
const at::Tensor& input_of(const CallPlan& plan, const std::vector<at::Tensor>& args,
                           size_t index) {
  const Prologue::Input& input = plan.prologue->inputs[index];
  switch (input.kind) {
    case Prologue::Input::Kind::Argument:
      return args[static_cast<size_t>(input.index)];
    case Prologue::Input::Kind::Captured:
      return input.captured;
    case Prologue::Input::Kind::Base: {
      const Prologue::Base& base = plan.prologue->bases[static_cast<size_t>(input.index)];
      return args[static_cast<size_t>(base.arguments[0])];
    }
    case Prologue::Input::Kind::GradOfInput:
      break;
  }
  return input_of(plan, args, static_cast<size_t>(input.index)).grad();
}

bool is_guarded_apart(const Prologue::Input& input) {
  return input.kind == Prologue::Input::Kind::Captured ||
         input.kind == Prologue::Input::Kind::GradOfInput;
}

/// A set of pointers that does not allocate for the usual number of arguments.
class SeenTensors {
 public:
  explicit SeenTensors(size_t count) {
    size_t capacity = 16;
    while (capacity < 2 * count) capacity *= 2;
    slots_.resize(capacity, {nullptr, 0});
  }

  /// The position under which the pointer was added first.
  int32_t add(const void* pointer, int32_t position) {
    const size_t mask = slots_.size() - 1;
    size_t slot = (reinterpret_cast<uintptr_t>(pointer) >> 6) & mask;
    while (slots_[slot].first != nullptr && slots_[slot].first != pointer) slot = (slot + 1) & mask;
    if (slots_[slot].first == nullptr) slots_[slot] = {pointer, position};
    return slots_[slot].second;
  }

 private:
  c10::SmallVector<std::pair<const void*, int32_t>, 512> slots_;
};

/// What two tensors have in common whose storages share memory.
const void* memory_of(const at::Tensor& tensor) {
  if (!tensor.has_storage()) return tensor.unsafeGetTensorImpl();
  const at::DataPtr& data = tensor.storage().data_ptr();
  if (data.get_deleter() == &c10::refcounted_deleter) return data.get_context();
  return tensor.storage().unsafeGetStorageImpl();
}

/// The inputs of a graph by their memory.
class InputMemories {
 public:
  InputMemories(const CallPlan& plan, const std::vector<at::Tensor>& args)
      : plan_(plan), args_(args), first_(plan.prologue->inputs.size()) {
    const size_t count = plan.prologue->inputs.size();
    next_.resize(count, -1);
    for (size_t i = 0; i < count; ++i) {
      const auto position = static_cast<int32_t>(i);
      const int32_t first = first_.add(memory_of(input_of(plan, args, i)), position);
      firsts_.push_back(first);
      if (first == position) continue;
      next_[i] = next_[static_cast<size_t>(first)];
      next_[static_cast<size_t>(first)] = position;
    }
  }

  /// Whether an input shares no element with another one.
  bool is_alone(int32_t index) const {
    const auto position = static_cast<size_t>(index);
    const at::Tensor& written = input_of(plan_, args_, position);
    const bool is_base = kind_of(index) == Prologue::Input::Kind::Base;
    for (int32_t i = firsts_[position]; i >= 0; i = next_[static_cast<size_t>(i)]) {
      if (i == index) continue;
      const at::Tensor& other = input_of(plan_, args_, static_cast<size_t>(i));
      if (other.is_same(written) && kind_of(i) == Prologue::Input::Kind::Argument) continue;
      if (is_base ? other.is_alias_of(written) : overlap(other, written)) return false;
    }
    return true;
  }

 private:
  Prologue::Input::Kind kind_of(int32_t index) const {
    return plan_.prologue->inputs[static_cast<size_t>(index)].kind;
  }

  const CallPlan& plan_;
  const std::vector<at::Tensor>& args_;
  SeenTensors first_;
  /// By input: the first one with the same memory, and the next one; -1: none.
  c10::SmallVector<int32_t, 512> firsts_, next_;
};

}  // namespace

TensorGuard::TensorGuard(const at::Tensor& tensor, bool offset)
    : keys(tensor.key_set().raw_repr()),
      requires_grad(tensor.requires_grad()),
      has_tangent(has_forward_tangent(tensor)),
      with_offset(offset),
      meta(TensorMeta::of(tensor)) {}

bool TensorGuard::holds_but_for_sizes(const at::Tensor& tensor) const {
  const c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  return impl.key_set().raw_repr() == keys &&
         impl.dtype() == c10::scalarTypeToTypeMeta(meta.dtype) && impl.device() == meta.device &&
         impl.requires_grad() == requires_grad && has_forward_tangent(tensor) == has_tangent &&
         static_cast<size_t>(impl.dim()) == meta.sizes.size();
}

bool TensorGuard::holds(const at::Tensor& tensor) const {
  const c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  return impl.key_set().raw_repr() == keys &&
         impl.dtype() == c10::scalarTypeToTypeMeta(meta.dtype) && impl.device() == meta.device &&
         impl.requires_grad() == requires_grad && impl.sizes() == meta.sizes &&
         impl.strides() == meta.strides && has_forward_tangent(tensor) == has_tangent &&
         (!with_offset || impl.storage_offset() == meta.offset);
}

std::string TensorGuard::difference(const at::Tensor& now) const {
  if (holds(now)) return "";
  if (now.layout() != at::kStrided || !now.has_storage()) return "it is no dense tensor any more";
  const TensorMeta is = TensorMeta::of(now);
  if (is == meta) return "it is a tensor of another sort";
  return "expected " + meta.str() + ", got " + is.str();
}

CallGuard::CallGuard(const CallPlan& plan, const std::vector<at::Tensor>& args, bool with_offsets) {
  SeenTensors seen(args.size());
  for (size_t i = 0; i < args.size(); ++i) {
    arguments_.emplace_back(args[i], with_offsets);
    first_same_.push_back(seen.add(args[i].unsafeGetTensorImpl(), static_cast<int32_t>(i)));
  }
  for (size_t i = 0; i < plan.prologue->inputs.size(); ++i) {
    if (!is_guarded_apart(plan.prologue->inputs[i])) continue;
    captured_.emplace_back(input_of(plan, args, i), with_offsets);
  }
  for (const Prologue::Base& base : plan.prologue->bases)
    bases_.emplace_back(base_of(base, args), true);
  for (const Epilogue::NewGrad& grad : plan.epilogue.new_grads) {
    had_grad_.push_back(input_of(plan, args, static_cast<size_t>(grad.input)).grad().defined());
  }
  if (plan.differentiates) descents_ = find_descents(plan, args);
}

CallGuard::Descents CallGuard::find_descents(const CallPlan& plan,
                                             const std::vector<at::Tensor>& args) {
  std::vector<at::Tensor> tensors = args;
  for (size_t i = 0; i < plan.prologue->inputs.size(); ++i) {
    if (is_guarded_apart(plan.prologue->inputs[i])) tensors.push_back(input_of(plan, args, i));
  }
  const auto is_computed = [](const at::Tensor& tensor) {
    return tensor.defined() && !tensor.is_leaf();
  };
  Descents descents;
  if (std::none_of(tensors.begin(), tensors.end(), is_computed)) return descents;
  namespace impl = torch::autograd::impl;
  tracing::Ancestry ancestry;
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (!tensors[i].defined() || !tensors[i].requires_grad()) continue;
    const torch::autograd::Edge edge =
        is_computed(tensors[i])
            ? impl::gradient_edge(tensors[i])
            : torch::autograd::Edge(impl::try_get_grad_accumulator(tensors[i]), 0);
    if (!edge.is_valid()) continue;
    const auto relatives = ancestry.add(i, edge, is_computed(tensors[i]));
    for (size_t ancestor : relatives.ancestors) descents.emplace_back(i, ancestor);
    for (size_t descendant : relatives.descendants) descents.emplace_back(descendant, i);
  }
  return descents;
}

bool CallGuard::same_identities(const std::vector<at::Tensor>& args) const {
  SeenTensors seen(args.size());
  for (size_t i = 0; i < args.size(); ++i) {
    if (seen.add(args[i].unsafeGetTensorImpl(), static_cast<int32_t>(i)) != first_same_[i])
      return false;
  }
  return true;
}

/// Whether each input that the function or its backward writes to shares its memory with no other
/// input; otherwise the graph, which knows of no memory, would be wrong.
bool CallGuard::is_written_alone(const CallPlan& plan, const std::vector<at::Tensor>& args) const {
  const InputMemories memories(plan, args);
  for (const Epilogue::Write& write : plan.epilogue.writes) {
    if (write.changes_contents() && !memories.is_alone(write.input)) return false;
  }
  for (const Epilogue::Reset& reset : plan.epilogue.resets) {
    if (reset.grows && !memories.is_alone(reset.input)) return false;
  }
  for (const BackwardPlan::Write& write : plan.backward.writes) {
    const BackwardPlan::Saved& saved = plan.backward.saved[static_cast<size_t>(write.saved)];
    if (!memories.is_alone(saved.index)) return false;
  }
  return true;
}

/// Whether each argument that was a captured tensor of the function as well is that tensor again.
bool CallGuard::are_known(const CallPlan& plan, const std::vector<at::Tensor>& args) {
  for (size_t i = 0; i < plan.prologue->inputs.size(); ++i) {
    const Prologue::Input& input = plan.prologue->inputs[i];
    if (is_guarded_apart(input) || !input.captured.defined()) continue;
    if (!input_of(plan, args, i).is_same(input.captured)) return false;
  }
  return true;
}

/// Whether each synthetic base has the metadata it had, and the same arguments are its views.
bool CallGuard::have_same_bases(const CallPlan& plan, const std::vector<at::Tensor>& args) const {
  for (size_t i = 0; i < plan.prologue->bases.size(); ++i) {
    const at::Tensor base = base_of(plan.prologue->bases[i], args);
    if (!base.defined() || !bases_[i].holds(base)) return false;
    if (tracked_by(base, plan.prologue->bases[i], args) != plan.prologue->bases[i].tracked)
      return false;
    if (version_counters(plan.prologue->bases[i], args) != plan.prologue->bases[i].counters)
      return false;
  }
  return true;
}

/// Eager refuses to write to a leaf that requires grad.
bool CallGuard::writes_to_no_leaf(const CallPlan& plan, const std::vector<at::Tensor>& args) {
  return std::none_of(
      plan.epilogue.writes.begin(), plan.epilogue.writes.end(), [&](const Epilogue::Write& write) {
        const Prologue::Input& input = plan.prologue->inputs[static_cast<size_t>(write.input)];
        if (!write.seen_by_autograd || input.kind != Prologue::Input::Kind::Argument) return false;
        const at::Tensor& written = args[static_cast<size_t>(input.index)];
        return written.requires_grad() && written.is_leaf();
      });
}

bool CallGuard::holds(const CallPlan& plan, const std::vector<at::Tensor>& args) const {
  if (args.size() != arguments_.size()) return false;
  for (size_t i = 0; i < args.size(); ++i) {
    if (!arguments_[i].holds(args[i])) return false;
  }
  return holds_together(plan, args);
}

bool CallGuard::holds_but_for_sizes(const CallPlan& plan,
                                    const std::vector<at::Tensor>& args) const {
  if (args.size() != arguments_.size()) return false;
  for (size_t i = 0; i < args.size(); ++i) {
    if (!arguments_[i].holds_but_for_sizes(args[i])) return false;
  }
  return holds_together(plan, args);
}

bool CallGuard::holds_together(const CallPlan& plan, const std::vector<at::Tensor>& args) const {
  if (!are_known(plan, args)) return false;
  size_t next = 0;
  for (size_t i = 0; i < plan.prologue->inputs.size(); ++i) {
    if (!is_guarded_apart(plan.prologue->inputs[i])) continue;
    const at::Tensor& tensor = input_of(plan, args, i);
    if (!tensor.defined() || !captured_[next++].holds(tensor)) return false;
  }
  for (size_t i = 0; i < plan.epilogue.new_grads.size(); ++i) {
    const at::Tensor& owner =
        input_of(plan, args, static_cast<size_t>(plan.epilogue.new_grads[i].input));
    if (owner.grad().defined() != had_grad_[i] || !owner.is_leaf()) return false;
  }
  return (args.size() < 2 || same_identities(args)) &&
         (plan.prologue->bases.empty() || have_same_bases(plan, args)) &&
         ((plan.epilogue.writes.empty() && plan.epilogue.resets.empty() &&
           plan.backward.writes.empty()) ||
          (is_written_alone(plan, args) && writes_to_no_leaf(plan, args))) &&
         (!plan.differentiates || find_descents(plan, args) == descents_);
}

std::string CallGuard::reason(const CallPlan& plan, const std::vector<at::Tensor>& args) const {
  if (args.size() != arguments_.size()) return "another number of tensors";
  for (size_t i = 0; i < args.size(); ++i) {
    const std::string difference = arguments_[i].difference(args[i]);
    if (!difference.empty()) return "tensor " + std::to_string(i) + ": " + difference;
  }
  if (!are_known(plan, args)) return "an argument was a tensor that the function has by itself too";
  size_t next = 0;
  for (size_t i = 0; i < plan.prologue->inputs.size(); ++i) {
    if (!is_guarded_apart(plan.prologue->inputs[i])) continue;
    const at::Tensor& tensor = input_of(plan, args, i);
    if (!tensor.defined()) return "a gradient that was there is undefined";
    const std::string difference = captured_[next++].difference(tensor);
    if (!difference.empty()) return "a captured tensor: " + difference;
  }
  if (!same_identities(args)) return "other arguments are the same tensor";
  if (!have_same_bases(plan, args)) return "arguments share memory in another way";
  if (!is_written_alone(plan, args))
    return "a tensor that is written to shares memory with another one";
  if (!writes_to_no_leaf(plan, args)) return "a tensor that is written to is a leaf";
  if (plan.differentiates && find_descents(plan, args) != descents_)
    return "the function takes gradients, and other tensors were computed from each other outside";
  return holds(plan, args) ? "" : "a gradient is defined now that was not, or the other way round";
}

}  // namespace ahead::runtime
