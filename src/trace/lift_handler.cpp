#include "trace/handlers.h"

#include <ATen/FunctionalTensorWrapper.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/autocast_mode.h>
#include <ATen/ops/copy.h>
#include <c10/core/StorageImpl.h>

#include "ahead/errors.h"
#include "ir/signature.h"
#include "trace/custom_op.h"
#include "trace/guards.h"
#include "trace/map_tensors.h"
#include "trace/traced_op.h"
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
    // Operators that run user code again must find it traced in the same way.
    std::optional<c10::impl::ExcludeDispatchKeyGuard> once;
    if (!op_.runs_backward) once.emplace(c10::DispatchKey::DeferredInit);
    lift_arguments();
    tracer_->set_autocast(is_autocast_enabled());
    ensure_functionalizable(op_);
    if (op_.keeps_layout) remember_layouts();
    call();
    restore_layouts();
    watch_results();
  }

 private:
  void lift_arguments() {
    for (size_t i = stack_.size() - static_cast<size_t>(op_.num_args); i < stack_.size(); ++i) {
      c10::IValue& argument = stack_[i];
      if (argument.isTensor()) {
        const at::Tensor& tensor = argument.toTensor();
        if (is_plain(tensor)) argument = tracer_->lift(tensor);
      } else if (argument.isList()) {
        lift_list(argument);
      }
    }
  }

  void lift_list(c10::IValue& argument) {
    bool any_plain = false;
    for_each_tensor(argument, [&](const at::Tensor& tensor) { any_plain |= is_plain(tensor); });
    if (!any_plain) return;
    map_tensors(argument, [&](const at::Tensor& tensor) {
      return is_plain(tensor) ? tracer_->lift(tensor) : tensor;
    });
  }

  /// Wrapped numbers stay as they are: they become constants, not inputs.
  static bool is_plain(const at::Tensor& tensor) {
    return tensor.defined() && !is_traced(tensor) && !is_fake(tensor) &&
           !tensor.unsafeGetTensorImpl()->is_wrapped_number();
  }

  static bool is_autocast_enabled() {
    return at::autocast::is_autocast_enabled(at::kCPU) ||
           at::autocast::is_autocast_enabled(at::kCUDA);
  }

  void call() {
    const c10::DispatchKeySet below(c10::DispatchKeySet::FULL_AFTER,
                                    c10::DispatchKey::DeferredInit);
    handle_.redispatchBoxed(keys_ & below, &stack_);
  }

  /// A tensor that an operator writes to, as it was before.
  struct Written {
    at::Tensor wrapper;
    at::Tensor value;
  };

  /// Functionalisation would add up what is written to the same memory.
  void check_not_overlapping(const at::Tensor& tensor) const {
    if (at::has_internal_overlap(tensor) != at::MemOverlap::Yes) return;
    throw Unsupported("trace", op_.op->name() +
                                   ": it writes to a tensor several elements of which are the same "
                                   "memory (expand, for example). Clone it first.");
  }

  void remember_layouts() {
    const size_t first = stack_.size() - static_cast<size_t>(op_.num_args);
    for (size_t index : written_arguments(*op_.op)) {
      const c10::IValue& argument = stack_[first + index];
      if (!argument.isTensor() || !is_traced(argument.toTensor())) continue;
      check_not_overlapping(argument.toTensor());
      functional::sync(argument.toTensor());
      written_.push_back(
          {argument.toTensor(), functional::from_functional_tensor(argument.toTensor())});
    }
  }

  /// Functionalisation gives a tensor the layout that the out-of-place operator chooses; in eager
  /// it keeps its own.
  void restore_layouts() {
    for (const auto& [wrapper, before] : written_) {
      functional::sync(wrapper);
      const at::Tensor after = functional::from_functional_tensor(wrapper);
      if (after.sizes() != before.sizes() || after.strides() == before.strides()) continue;
      if (!before.is_non_overlapping_and_dense()) continue;
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

  void watch_results() {
    if (op_.mutates) return;
    for (size_t i = stack_.size() - static_cast<size_t>(op_.num_returns); i < stack_.size(); ++i) {
      for_each_tensor(stack_[i], [&](const at::Tensor& tensor) {
        if (!is_traced(tensor)) return;
        seal_storage(tensor);
        tracer_->watch(tensor, *op_.op);
      });
    }
  }

  const c10::OperatorHandle& handle_;
  c10::DispatchKeySet keys_;
  torch::jit::Stack& stack_;
  TracedOp& op_;
  Tracer* tracer_;
  c10::SmallVector<Written, 1> written_;
};

}  // namespace

void seal_storage(const at::Tensor& traced) {
  // LibTorch itself refuses typed access to memory that was never allocated; this refuses the rest.
  traced.unsafeGetTensorImpl()
      ->unsafe_storage()
      .unsafeGetStorageImpl()
      ->set_throw_on_mutable_data_ptr();
}

void handle_lift(const c10::OperatorHandle& handle, c10::DispatchKeySet keys,
                 torch::jit::Stack* stack) {
  LiftHandler(handle, keys, *stack).run();
}

}  // namespace ahead::tracing
