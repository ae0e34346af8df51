#include "trace/dispatch/handlers.h"

#include <ATen/FunctionalTensorWrapper.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/ops/copy.h>
#include <c10/core/StorageImpl.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>

#include "ahead/errors.h"
#include "base/autocast.h"
#include "ir/signature.h"
#include "ops/facts/facts.h"
#include "tensors/below_tracing.h"
#include "tensors/map_tensors.h"
#include "tensors/partial_overlap.h"
#include "trace/dispatch/custom_op.h"
#include "trace/dispatch/real_shapes.h"
#include "trace/dispatch/traced_op.h"
#include "trace/eager/eager_formulas.h"
#include "trace/eager/expand.h"
#include "trace/eager/in_place.h"
#include "trace/tensor/functional.h"
#include "trace/tensor/views.h"
#include "trace/tracer.h"

namespace ahead::tracing {
namespace {

namespace functional = at::functionalization::impl;

/// The topmost handler: it sees every operator that user code calls while tracing, with all keys
/// still to come. Tensors from outside the trace are replaced by what stands for them inside.
class LiftHandler {
 public:
  LiftHandler(const c10::OperatorHandle& handle, c10::DispatchKeySet keys, torch::jit::Stack& stack)
      : handle_(handle),
        keys_(keys),
        stack_(stack),
        op_(traced_op(handle)),
        tracer_(Tracer::current()) {}

  void run() {
    if (tracer_ == nullptr) return call();
    std::optional<c10::impl::ExcludeDispatchKeyGuard> once;
    if (!op_.is_transparent) once.emplace(c10::DispatchKey::DeferredInit);
    lift_arguments();
    if (tracer_->live_tensors().is_watching()) watch_arguments();
    tracer_->writer().set_autocast(is_autocast_enabled());
    tracer_->hidden_writes().set_grad_mode(at::GradMode::is_enabled());
    ensure_functionalizable(op_);
    if (op_.addresses_storage) address_storage();
    if (op_.addresses_storage || (op_.mutates && !op_.keeps_layout)) note_fragile_view();
    if (op_.keeps_layout) write_by_layout();
    if (op_.mutates) find_written();
    if (op_.mutates) count_list_writes();
    if (!op_.mutates) find_viewed();
    if (op_.keeps_layout) remember_layouts();
    const bool may_cast = op_.is_autocast_cpu || op_.is_autocast_cuda;
    if (may_cast && tracer_->writer().phase() == Phase::Backward) watch_casts();
    if (!op_.is_in_formula || !follow_eager_formula(op_, *tracer_, stack_)) call();
    if (op_.addresses_storage) check_stays_inside();
    find_cast_results();
    tracer_->casts().stop_watching();
    restore_layouts();
    return_originals();
    tracer_->outside().keep_storages();
    for (size_t i = 0; i < written_.size(); ++i) {
      tracer_->outside().mirror_history(written_[i]);
      if (!op_.keeps_layout) mirror_shape(tracer_->outside(), written_[i]);
      tracer_->hidden_writes().note_write(written_[i], histories_[i], *op_.op);
    }
    watch_results();
  }

 private:
  void lift_arguments() {
    for (size_t i = stack_.size() - static_cast<size_t>(op_.num_args); i < stack_.size(); ++i) {
      c10::IValue& argument = stack_[i];
      if (argument.isTensor()) {
        const at::Tensor& tensor = argument.toTensor();
        if (is_plain(tensor)) argument = tracer_->outside().lift(tensor);
      } else if (argument.isList()) {
        lift_list(argument);
      }
      for_each_tensor(argument, [&](const at::Tensor& tensor) { keep_outdated(tensor); });
    }
  }

  /// Functionalisation makes a tensor anew that was written to through another one.
  void keep_outdated(const at::Tensor& tensor) {
    if (tensor.defined() && is_traced(tensor) && !functional_wrapper(tensor).is_up_to_date())
      tracer_->live_tensors().keep_replaced(tensor);
  }

  void lift_list(c10::IValue& argument) {
    bool any_plain = false;
    for_each_tensor(argument, [&](const at::Tensor& tensor) { any_plain |= is_plain(tensor); });
    if (!any_plain) return;
    map_tensors(argument, [&](const at::Tensor& tensor) {
      return is_plain(tensor) ? tracer_->outside().lift(tensor) : tensor;
    });
  }

  /// Wrapped numbers stay as they are: they become constants, not inputs.
  static bool is_plain(const at::Tensor& tensor) {
    return tensor.defined() && !is_traced(tensor) && !is_fake(tensor) &&
           !tensor.unsafeGetTensorImpl()->is_wrapped_number();
  }

  void call() {
    if (op_.decomposition != nullptr && tracer_ != nullptr)
      return op_.decomposition->callBoxed(handle_, keys_, &stack_);
    const c10::DispatchKeySet below(c10::DispatchKeySet::FULL_AFTER,
                                    c10::DispatchKey::DeferredInit);
    handle_.redispatchBoxed(keys_ & below, &stack_);
  }

  /// Functionalisation would add up what is written to the same memory.
  void check_not_overlapping(const at::Tensor& tensor) const {
    if (at::has_internal_overlap(tensor) != at::MemOverlap::Yes) return;
    throw Unsupported("trace", op_.op->name() +
                                   ": it writes to a tensor several elements of which are the same "
                                   "memory (expand, for example). Clone it first.");
  }

  size_t first_argument() const { return stack_.size() - static_cast<size_t>(op_.num_args); }

  c10::ArrayRef<c10::IValue> arguments() const {
    return c10::ArrayRef<c10::IValue>(stack_).slice(first_argument());
  }

  void address_storage() {
    c10::IValue& self = stack_[first_argument()];
    if (!self.isTensor() || !is_traced(self.toTensor())) return;
    tracer_->outside().address_storage(self.toTensor());
    functional::sync(self.toTensor());
  }

  /// Nothing was ever written behind the end of what the function computed.
  void check_stays_inside() const {
    const c10::IValue& result = stack_.back();
    if (!result.isTensor() || !is_traced(result.toTensor())) return;
    const at::Tensor& view = result.toTensor();
    auto* memory = functional_memory(view);
    const at::Tensor whole = memory->base();
    if (is_symbolic(view) || is_symbolic(whole) || view.scalar_type() != whole.scalar_type() ||
        end_of(view) <= end_of(whole))
      return;
    for (const Lifted& lifted : tracer_->outside().lifted()) {
      if (lifted.memory._unsafe_get_target() == memory) return;
    }
    throw Unsupported("trace", op_.op->name() +
                                   ": it reads memory behind the end of a tensor that the function "
                                   "computed, which holds no result. Stay inside the tensor.");
  }

  void note_fragile_view() {
    const c10::IValue& self = stack_[first_argument()];
    if (!self.isTensor() || !is_traced(self.toTensor())) return;
    tracer_->fragile_views().note(self.toTensor(), *op_.op);
  }

  bool is_differentiated() const {
    bool requires_grad = false;
    for (size_t i = first_argument(); i < stack_.size(); ++i) {
      for_each_tensor(stack_[i], [&](const at::Tensor& tensor) {
        requires_grad = requires_grad || (tensor.defined() && tensor.requires_grad());
      });
    }
    return requires_grad && at::GradMode::is_enabled();
  }

  /// Autograd would have to know how views of one memory lie to each other.
  void check_not_fragile(const at::Tensor& written) const {
    const Operator* op = tracer_->fragile_views().find(written);
    if (op == nullptr || !is_differentiated()) return;
    throw Unsupported(
        "trace", op_.op->name() + ": it writes to memory of which there is a view that " +
                     op->name() + " made of another view, or changed in place. Clone that view.");
  }

  /// Functionalisation undoes expand by adding up what was expanded. A part of it, each element of
  /// which is memory of its own, is written to as the part of the base that it is.
  void write_by_layout() {
    for (size_t index : written_arguments(*op_.op)) {
      c10::IValue& argument = stack_[first_argument() + index];
      if (!argument.isTensor() || !is_traced(argument.toTensor())) continue;
      const at::Tensor written = argument.toTensor();
      if (!is_expanded(written) || at::has_internal_overlap(written) == at::MemOverlap::Yes)
        continue;
      const at::Tensor view = view_by_layout(tracer_->outside(), written);
      if (!view.defined()) continue;
      argument = view;
      by_layout_.emplace_back(view, written);
    }
  }

  /// In-place operators return the tensor that they were called on.
  void return_originals() {
    for (const auto& [view, original] : by_layout_) {
      functional::sync(original);
      for (size_t i = stack_.size() - static_cast<size_t>(op_.num_returns); i < stack_.size(); ++i)
        if (stack_[i].isTensor() && stack_[i].toTensor().is_same(view)) stack_[i] = original;
    }
  }

  /// Whether autocast could cast a tensor for this operator.
  bool is_castable(const at::Tensor& tensor) const {
    if (!tensor.defined() || !at::isFloatingType(tensor.scalar_type())) return false;
    const bool is_cast = tensor.is_cuda() ? op_.is_autocast_cuda : op_.is_autocast_cpu;
    return is_cast && tensor.scalar_type() != at::kDouble;
  }

  void watch_casts() {
    std::optional<at::ScalarType> dtype;
    bool is_one = true, is_castable = false;
    for (size_t i = first_argument(); i < stack_.size(); ++i) {
      for_each_tensor(stack_[i], [&](const at::Tensor& tensor) {
        if (!tensor.defined() || !at::isFloatingType(tensor.scalar_type())) return;
        is_one = is_one && (!dtype || dtype == tensor.scalar_type());
        dtype = tensor.scalar_type();
        is_castable = is_castable || this->is_castable(tensor);
      });
      has_dtype_argument_ = has_dtype_argument_ || is_dtype(i - first_argument());
    }
    if (is_castable) tracer_->casts().note_castable(*op_.op);
    if (!dtype || !is_autocast_enabled()) return;
    tracer_->casts().watch(*op_.op, is_one ? dtype : std::nullopt);
    if (is_one) uncast_ = dtype;
  }

  /// Whether an argument says of which type the results shall be.
  bool is_dtype(size_t index) const {
    return op_.op->handle().schema().arguments()[index].name() == "dtype" &&
           !stack_[first_argument() + index].isNone();
  }

  /// Autocast leaves what a few operators take as it is, and asks for results of another type.
  void find_cast_results() {
    if (!uncast_ || has_dtype_argument_) return;
    for (size_t i = stack_.size() - static_cast<size_t>(op_.num_returns); i < stack_.size(); ++i) {
      for_each_tensor(stack_[i], [&](const at::Tensor& tensor) {
        if (tensor.defined() && at::isFloatingType(tensor.scalar_type()) &&
            tensor.scalar_type() != *uncast_)
          tracer_->casts().note_cast_result();
      });
    }
  }

  void find_written() {
    for (size_t index : written_arguments(*op_.op)) {
      for_each_tensor(stack_[first_argument() + index], [&](const at::Tensor& tensor) {
        if (!is_traced(tensor)) return;
        tracer_->live_tensors().keep_replaced(tensor);
        written_.push_back(tensor);
        histories_.push_back(HiddenWrites::history_of(tensor));
      });
    }
  }

  /// The differentiable tensor that a view operator takes.
  void find_viewed() {
    if (op_.num_args == 0 || !stack_[first_argument()].isTensor()) return;
    const at::Tensor& tensor = stack_[first_argument()].toTensor();
    if (is_traced(tensor) && tensor.requires_grad()) viewed_ = tensor;
  }

  /// Functionalisation would not know which of the elements that are one counts.
  void check_not_expanded(const at::Tensor& tensor) const {
    if (!is_expanded(tensor)) return;
    throw Unsupported("trace", op_.op->name() +
                                   ": it writes to a part of an expanded tensor. Write to the "
                                   "tensor itself, or clone it first.");
  }

  void remember_layouts() {
    for (const at::Tensor& tensor : written_) {
      check_not_overlapping(tensor);
      check_not_fragile(tensor);
      check_not_expanded(tensor);
      check_complex_rounding(op_, tensor, arguments());
      tracer_->outside().check_stays_inside(tensor);
      functional::sync(tensor);
      before_.push_back(functional::from_functional_tensor(tensor));
    }
    const auto indices = written_arguments(*op_.op);
    for (size_t i = 0; i < arguments().size(); ++i) {
      if (!arguments()[i].isTensor()) continue;
      check_not_overlapping_written(arguments()[i].toTensor());
      if (std::find(indices.begin(), indices.end(), i) == indices.end())
        check_not_written(arguments()[i].toTensor());
    }
  }

  /// Whether eager reads each element for the last time when it writes to it.
  bool is_elementwise() const {
    const Operator* twin = ops::facts(*op_.op).functional;
    const ops::OpFacts& facts = ops::facts(twin != nullptr ? *twin : *op_.op);
    return facts.op_class == ops::OpClass::Pointwise || facts.op_class == ops::OpClass::Copy;
  }

  /// Eager overwrites the operand while it reads it: mm_out(x, x, y).
  void check_not_written(const at::Tensor& read) const {
    const bool is_written =
        read.defined() && std::any_of(written_.begin(), written_.end(),
                                      [&](const at::Tensor& to) { return to.is_same(read); });
    const bool is_custom = op_.op->name().rfind("aten.", 0) != 0;
    if (!is_written || is_custom || is_elementwise()) return;
    throw Unsupported("trace", op_.op->name() +
                                   ": it writes its result to a tensor that it reads as an "
                                   "operand. Clone the operand.");
  }

  /// Eager reads what it has just written.
  void check_not_overlapping_written(const at::Tensor& read) const {
    if (!read.defined() || !is_traced(read)) return;
    for (const at::Tensor& written : written_) {
      if (written.is_same(read) || !written.is_alias_of(read)) continue;
      functional::sync(read);
      if (!overlaps_partly(written, read)) continue;
      throw Unsupported("trace", op_.op->name() +
                                     ": it writes to a tensor and reads another view of the same "
                                     "memory, so that the result depends on the order in which it "
                                     "does so. Clone what it reads.");
    }
  }

  /// Operators resize what they are given for their result.
  void check_made_inside(const at::Tensor& resized) const {
    const auto& lifted = tracer_->outside().lifted();
    if (std::none_of(lifted.begin(), lifted.end(),
                     [&](const Lifted& outside) { return outside.wrapper.is_same(resized); }))
      return;
    throw Unsupported("trace", op_.op->name() +
                                   ": it changes the size of a tensor from outside to that of its "
                                   "result. Pass a tensor of the right size.");
  }

  /// Functionalisation gives a tensor the layout that the out-of-place operator chooses; in eager
  /// it keeps its own.
  void restore_layouts() {
    for (size_t i = 0; i < before_.size(); ++i) {
      const at::Tensor &wrapper = written_[i], &before = before_[i];
      functional::sync(wrapper);
      const at::Tensor after = functional::from_functional_tensor(wrapper);
      if (after.sym_sizes() != before.sym_sizes()) {
        check_made_inside(wrapper);
        continue;
      }
      if (after.sym_strides() == before.sym_strides()) continue;
      at::Tensor restored;
      {
        c10::impl::ExcludeDispatchKeyGuard below(
            c10::autograd_dispatch_keyset_with_ADInplaceOrView |
            c10::DispatchKeySet(c10::DispatchKey::Functionalize));
        restored = at::copy(before, after);
      }
      functional::replace_(wrapper, restored);
      functional::commit_update(wrapper);
      functional::sync(wrapper);
    }
  }

  void count_list_writes() {
    const size_t first = stack_.size() - static_cast<size_t>(op_.num_args);
    for (size_t index : written_arguments(*op_.op)) {
      if (!stack_[first + index].isTensorList()) continue;
      for_each_tensor(stack_[first + index], [&](const at::Tensor& tensor) {
        if (is_traced(tensor)) tracer_->list_writes().note(tensor);
      });
    }
  }

  /// Some were made by no operator: torch::zeros() and its like return a copy of one.
  void watch_arguments() {
    for (const c10::IValue& argument : arguments()) {
      for_each_tensor(argument, [&](const at::Tensor& tensor) {
        if (is_traced(tensor)) tracer_->live_tensors().watch(tensor);
      });
    }
  }

  void watch_results() {
    if (op_.mutates) return;
    for (size_t i = stack_.size() - static_cast<size_t>(op_.num_returns); i < stack_.size(); ++i) {
      for_each_tensor(stack_[i], [&](const at::Tensor& tensor) {
        if (!is_traced(tensor)) return;
        seal_storage(tensor);
        recover_by_layout(tensor);
        if (viewed_.defined() && tensor.is_alias_of(viewed_))
          tracer_->hidden_writes().note_view(tensor, *op_.op);
        tracer_->live_tensors().watch(tensor);
      });
    }
  }

  const c10::OperatorHandle& handle_;
  c10::DispatchKeySet keys_;
  torch::jit::Stack& stack_;
  TracedOp& op_;
  Tracer* tracer_;
  /// Views of bases that are written to in place of other views, and those.
  c10::SmallVector<std::pair<at::Tensor, at::Tensor>, 1> by_layout_;
  at::Tensor viewed_;
  /// The one floating-point type that it takes, where autocast is watched.
  std::optional<at::ScalarType> uncast_;
  bool has_dtype_argument_ = false;
  c10::SmallVector<at::Tensor, 1> written_;
  c10::SmallVector<NodePtr, 1> histories_;  ///< of what is written, before
  c10::SmallVector<at::Tensor, 1> before_;  ///< what they held; only if they keep their layout
};

}  // namespace

void handle_lift(const c10::OperatorHandle& handle, c10::DispatchKeySet keys,
                 torch::jit::Stack* stack) {
  LiftHandler(handle, keys, *stack).run();
}

}  // namespace ahead::tracing
