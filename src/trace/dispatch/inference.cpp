#include "trace/dispatch/inference.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/EmptyTensor.h>
#include <ATen/core/Generator.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/zeros.h>

#include "ahead/errors.h"
#include "base/log.h"
#include "ops/cpu_layout.h"
#include "ops/facts/facts.h"
#include "ops/shape_rules.h"
#include "tensors/map_tensors.h"
#include "trace/dispatch/known_results.h"
#include "trace/observers/generator_watch.h"

namespace ahead::tracing {
namespace {

/// Gives a generator back the state it had: tracing must not draw random numbers.
class GeneratorStateGuard {
 public:
  explicit GeneratorStateGuard(at::Generator generator) : generator_(std::move(generator)) {
    std::lock_guard<std::mutex> lock(generator_.mutex());
    state_ = generator_.get_state();
  }
  ~GeneratorStateGuard() {
    std::lock_guard<std::mutex> lock(generator_.mutex());
    generator_.set_state(state_);
    GeneratorWatch::note_restored();
  }
  GeneratorStateGuard(const GeneratorStateGuard&) = delete;
  GeneratorStateGuard& operator=(const GeneratorStateGuard&) = delete;

 private:
  at::Generator generator_;
  at::Tensor state_;
};

at::Generator generator_of(const torch::jit::Stack& stack, size_t first, at::Device device) {
  for (size_t i = first; i < stack.size(); ++i) {
    if (stack[i].isGenerator()) return stack[i].toGenerator();
  }
  return at::globalContext().defaultGenerator(device);
}

at::Tensor zeros_like_meta(const at::Tensor& meta, at::Device device) {
  const int64_t elements = static_cast<int64_t>(meta.storage().nbytes() / meta.itemsize());
  at::Tensor storage = at::zeros({elements}, at::TensorOptions(device).dtype(meta.scalar_type()));
  return storage.as_strided(meta.sizes(), meta.strides(), meta.storage_offset());
}

/// Whether it is known without running it what an operator returns: nothing, or what it was seen to
/// return.
bool take_known_results(const TracedOp& op, torch::jit::Stack& stack) {
  const std::vector<TensorMeta>* known = KnownResults::find(op.op->handle());
  const bool is_void = op.num_returns == 0;
  if (!is_void && (known == nullptr || known->size() != static_cast<size_t>(op.num_returns)))
    return false;
  stack.resize(stack.size() - static_cast<size_t>(op.num_args));
  for (size_t i = 0; !is_void && i < known->size(); ++i) {
    const TensorMeta& meta = (*known)[i];
    stack.emplace_back(
        at::Tensor(at::detail::empty_strided_meta(meta.sizes, meta.strides, meta.dtype)));
  }
  return true;
}

/// Whether values decide what the operator returns, and it was seen what that is.
bool is_seen_result_of_values(const TracedOp& op) {
  const c10::OperatorHandle& handle = op.op->handle();
  return KnownResults::find(handle) != nullptr && handle.hasTag(at::Tag::dynamic_output_shape);
}

[[noreturn]] void refuse_to_run(const TracedOp& op) {
  throw Unsupported("trace", op.op->name() +
                                 ": there is no shape rule for this operator, and running it to "
                                 "find out would be once too often. Register a Meta kernel for "
                                 "it.");
}

void run_real_kernel(TracedOp& op, at::Device device, Tracer& tracer, torch::jit::Stack& stack) {
  if (take_known_results(op, stack)) return;
  const std::string& name = op.op->name();
  const bool must_not_run = op.facts->is_known_effect || tracer.outside().is_replay();
  if (op.effectful && must_not_run) refuse_to_run(op);
  if (!tracer.options().allow_real_kernels) {
    throw Unsupported(
        "trace",
        name +
            ": there is no shape rule for this operator. Register a Meta kernel for it, or set "
            "TraceOptions::allow_real_kernels.");
  }
  if (op.rule == nullptr) {
    warn_once("[trace] " + name +
              ": there is no shape rule for this operator, so its real kernel runs on zeros while "
              "tracing. Register a Meta kernel to make tracing faster.");
  }
  ++tracer.writer().counts.real_kernel_calls;
  const size_t first = stack.size() - static_cast<size_t>(op.num_args);
  if (op.device_arg >= 0) stack[first + static_cast<size_t>(op.device_arg)] = device;
  for (size_t i = first; i < stack.size(); ++i) {
    map_tensors(stack[i], [&](const at::Tensor& meta) { return zeros_like_meta(meta, device); });
  }
  std::optional<GeneratorStateGuard> guard;
  if (op.random) guard.emplace(generator_of(stack, first, device));
  try {
    op.op->handle().callBoxed(stack);
  } catch (const c10::Error& error) {
    throw Unsupported(
        "trace",
        name + ": there is no shape rule for this operator, and its real kernel failed on zeros: " +
            error.what_without_backtrace() + " Register a Meta kernel for it.");
  }
  for (size_t i = stack.size() - static_cast<size_t>(op.num_returns); i < stack.size(); ++i) {
    map_tensors(stack[i], [](const at::Tensor& real) {
      return at::Tensor(
          at::detail::empty_strided_meta(real.sizes(), real.strides(), real.scalar_type()));
    });
  }
}

}  // namespace

bool is_missing_meta_kernel(const c10::Error& error) {
  return dynamic_cast<const c10::NotImplementedError*>(&error) != nullptr ||
         error.msg().find("DispatchStub: unsupported device type") != std::string::npos;
}

namespace {

void call_rule(TracedOp& op, at::Device device, torch::jit::Stack& stack) {
  ops::RuleDeviceGuard guard(device);
  op.rule->callBoxed(op.op->handle(), c10::DispatchKeySet(c10::DispatchKey::Meta), &stack);
}

void call_meta_kernel(TracedOp& op, at::Device device, torch::jit::Stack& arguments,
                      torch::jit::Stack& stack) {
  const c10::DispatchKeySet meta_key(c10::DispatchKey::Meta);
  op.op->handle().redispatchBoxed(meta_key, &stack);
  if (op.pointwise && device.is_cpu() && stack.back().isTensor() &&
      ops::pack_converted_operands(op.op->schema(), arguments, stack.back().toTensor())) {
    stack.resize(stack.size() - static_cast<size_t>(op.num_returns));
    stack.insert(stack.end(), arguments.begin(), arguments.end());
    op.op->handle().redispatchBoxed(meta_key, &stack);
  }
}

/// What the operator itself returns, and where its generator stands then.
void infer_form(const Operator& drawn, at::Device device, Tracer& tracer, torch::jit::Stack& stack,
                size_t first) {
  const at::Tensor offset = stack[first + 1].toTensor();
  const auto begin = stack.begin() + static_cast<ptrdiff_t>(first);
  stack.erase(begin, begin + 2);
  infer_results(traced_op(drawn.handle()), device, tracer, stack);
  stack.emplace_back(at::detail::empty_meta(offset.sizes(), offset.scalar_type()));
}

}  // namespace

void infer_results(TracedOp& op, at::Device device, Tracer& tracer, torch::jit::Stack& stack) {
  if (op.drawn != nullptr) {
    const size_t first = stack.size() - static_cast<size_t>(op.num_args);
    return infer_form(*op.drawn, device, tracer, stack, first);
  }
  using Inference = TracedOp::Inference;
  if (is_seen_result_of_values(op) && take_known_results(op, stack)) return;
  if (op.acts_on_meta) {
    if (take_known_results(op, stack)) return;
    if (op.facts->is_known_effect) refuse_to_run(op);
  }
  if (op.inference == Inference::RealKernel) return run_real_kernel(op, device, tracer, stack);

  const size_t first = stack.size() - static_cast<size_t>(op.num_args);
  torch::jit::Stack arguments(stack.begin() + static_cast<ptrdiff_t>(first), stack.end());
  try {
    if (op.inference == Inference::Rule) {
      call_rule(op, device, stack);
      ++tracer.writer().counts.rule_calls;
    } else {
      call_meta_kernel(op, device, arguments, stack);
      ++tracer.writer().counts.meta_calls;
    }
  } catch (const c10::Error& error) {
    // A rule that knows its limits, or a composite kernel that meets an operator without Meta
    // kernel.
    if (!is_missing_meta_kernel(error)) throw;
    if (op.inference == Inference::MetaKernel) op.inference = Inference::RealKernel;
    stack.resize(first);
    stack.insert(stack.end(), arguments.begin(), arguments.end());
    run_real_kernel(op, device, tracer, stack);
  }
}

}  // namespace ahead::tracing
