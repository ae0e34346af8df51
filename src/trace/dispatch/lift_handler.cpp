#include "trace/dispatch/handlers.h"

#include <ATen/FunctionalTensorWrapper.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <optional>

#include "ahead/errors.h"
#include "base/autocast.h"
#include "tensors/wrapper_call.h"
#include "trace/dispatch/custom_op.h"
#include "trace/dispatch/traced_call.h"
#include "trace/dispatch/writing_call.h"
#include "trace/eager/eager_formulas.h"
#include "trace/tensor/functional.h"
#include "trace/tensor/views.h"
#include "trace/tracer.h"

namespace ahead::tracing {
namespace {

/// The topmost handler: it sees every operator that user code calls while tracing, with all keys
/// still to come. Tensors from outside the trace are replaced by what stands for them inside.
class LiftHandler {
 public:
  LiftHandler(const c10::OperatorHandle& handle, c10::DispatchKeySet keys, torch::jit::Stack& stack)
      : handle_(handle),
        keys_(keys),
        call_{traced_op(handle), stack},
        op_(call_.op),
        tracer_(Tracer::current()) {}

  void run() {
    if (tracer_ == nullptr) return redispatch();
    std::optional<c10::impl::ExcludeDispatchKeyGuard> once;
    if (!op_.is_transparent) once.emplace(c10::DispatchKey::DeferredInit);
    lift_arguments();
    if (tensors::has_wrapper(call_.arguments())) return call_on_wrappers();
    before();
    call();
    after();
  }

 private:
  void lift_arguments() {
    for (size_t i = call_.first_argument(); i < call_.stack.size(); ++i) {
      c10::IValue& argument = call_.stack[i];
      if (argument.isTensor()) {
        const at::Tensor& tensor = argument.toTensor();
        if (is_plain(tensor)) argument = tracer_->outside().lift(tensor);
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
      return is_plain(tensor) ? tracer_->outside().lift(tensor) : tensor;
    });
  }

  /// What wrappers are made of is traced when their class calls operators on it.
  void call_on_wrappers() {
    const tensors::SuspendedFunctionalization suspended;
    keys_ = keys_.remove(c10::DispatchKey::Functionalize);
    redispatch();
  }

  /// Wrapped numbers stay as they are: they become constants, not inputs.
  static bool is_plain(const at::Tensor& tensor) {
    return tensor.defined() && !is_traced(tensor) && !is_fake(tensor) &&
           !tensors::is_wrapper(tensor) && !tensor.unsafeGetTensorImpl()->is_wrapped_number();
  }

  void before() {
    tracer_->writer().set_autocast(is_autocast_enabled());
    if (tracer_->writer().phase() == Phase::Forward) tracer_->places().before();
    tracer_->live_tensors().before(call_);
    viewed_ = tracer_->hidden_writes().before(call_);
    if (op_.addresses_storage) address_storage();
    if (op_.changes_views) tracer_->fragile_views().before(call_);
    if (op_.writes_lists) tracer_->list_writes().before(call_);
    if (op_.mutates) prepare_write();
    if (op_.is_autocast && tracer_->writer().phase() == Phase::Backward)
      expected_dtype_ = tracer_->casts().before(call_);
  }

  void call() {
    if (op_.is_whole) return record_whole(op_, call_.stack);
    if (!op_.is_in_formula || !follow_eager_formula(op_, *tracer_, call_.stack)) redispatch();
  }

  void after() {
    if (op_.addresses_storage) check_stays_inside();
    tracer_->casts().after(call_, expected_dtype_);
    if (write_) write_->restore_layouts();
    tracer_->outside().restore_storages();
    if (write_) return write_->tell();
    finish_results();
    tracer_->hidden_writes().after(call_, viewed_);
    tracer_->live_tensors().after(call_);
  }

  void redispatch() {
    if (op_.decomposition != nullptr && tracer_ != nullptr)
      return op_.decomposition->callBoxed(handle_, keys_, &call_.stack);
    // Autocast leaves operators that write alone; functionalisation calls their twins, which it
    // casts.
    std::optional<c10::impl::ExcludeDispatchKeyGuard> no_casts;
    if (write_ && !op_.is_autocast && !op_.casts_inside)
      no_casts.emplace(c10::autocast_dispatch_keyset);
    const c10::DispatchKeySet below(c10::DispatchKeySet::FULL_AFTER,
                                    c10::DispatchKey::DeferredInit);
    handle_.redispatchBoxed(keys_ & below, &call_.stack);
  }

  void prepare_write() {
    ensure_functionalizable(op_);
    write_.emplace(*tracer_, call_);
  }

  void address_storage() {
    const at::Tensor* self = call_.traced_self();
    if (self == nullptr) return;
    tracer_->outside().address_storage(*self);
    at::functionalization::impl::sync(*self);
  }

  /// Nothing was ever written behind the end of what the function computed, and of a tensor from
  /// outside the kernel looks at the storage, which traced tensors have none of.
  void check_stays_inside() const {
    const c10::IValue& result = call_.stack.back();
    if (!result.isTensor() || !is_traced(result.toTensor())) return;
    const at::Tensor& view = result.toTensor();
    auto* memory = functional_memory(view);
    const at::Tensor whole = memory->base();
    if (is_symbolic(view) || is_symbolic(whole) || view.scalar_type() != whole.scalar_type() ||
        end_of(view) <= end_of(whole))
      return;
    for (const Lifted& lifted : tracer_->outside().lifted()) {
      if (lifted.memory._unsafe_get_target() == memory) return check_storage(view, whole, lifted);
    }
    throw Unsupported("trace", op_.op->name() +
                                   ": it reads memory behind the end of a tensor that the function "
                                   "computed, which holds no result. Stay inside the tensor.");
  }

  void check_storage(const at::Tensor& view, const at::Tensor& whole, const Lifted& lifted) const {
    if (has_other_memory(lifted) || !lifted.real.has_storage()) return;
    // What was written to begins anew.
    const int64_t moved = lifted.contents.storage_offset() - whole.storage_offset();
    const auto end = static_cast<uint64_t>(end_of(view) + moved) * view.itemsize();
    const uint64_t size = lifted.real.storage().nbytes();
    if (end <= size) return;
    throw Unsupported("trace",
                      c10::str(op_.op->name(), ": it reaches ", end,
                               " bytes into the memory of a tensor from outside, which has ", size,
                               ". Stay inside."));
  }

  void finish_results() {
    for_each_traced(call_.results(), [](const at::Tensor& tensor) {
      seal_storage(tensor);
      recover_by_layout(tensor);
    });
  }

  const c10::OperatorHandle& handle_;
  c10::DispatchKeySet keys_;
  const TracedCall call_;
  TracedOp& op_;
  Tracer* tracer_;
  at::Tensor viewed_;  ///< see HiddenWrites
  BackwardCasts::Expected expected_dtype_;
  std::optional<WritingCall> write_;  ///< if the operator writes to its arguments
};

}  // namespace

void handle_lift(const c10::OperatorHandle& handle, c10::DispatchKeySet keys,
                 torch::jit::Stack* stack) {
  LiftHandler(handle, keys, *stack).run();
}

}  // namespace ahead::tracing
