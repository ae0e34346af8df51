#include "trace/open_trace.h"

#include <torch/csrc/autograd/variable.h>

#include <utility>

#include "ahead/errors.h"
#include "base/process_end.h"
#include "trace/analysis/function_meta.h"
#include "trace/dispatch/real_shapes.h"
#include "trace/explain.h"

namespace ahead::tracing {

OpenTrace::OpenTrace(const ForwardOptions& options)
    : options_(options), tracer_(c10::make_intrusive<Tracer>(options.trace)) {
  if (options_.watches_tensors) tracer_->live_tensors().start_watching();
}

OpenTrace::~OpenTrace() {
  leave();
  if (!tracer_->is_closed()) tracer_->close();
}

double OpenTrace::seconds() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
}

void OpenTrace::run(const aot::FlatFunction& function, const std::vector<at::Tensor>& inputs) {
  if (is_process_ending()) {
    throw UserError("trace",
                    "static destructor: LibTorch's own static objects, which a trace needs, may be "
                    "gone. Trace before main() returns.");
  }
  watch_process_end();
  outside().let_sizes_change(options_.size_guards);
  if (options_.read_size) {
    tracer_->size_reads().allow(
        [this](const Value& number) { return options_.read_size(*this, number); });
  }
  for (size_t i = 0; i < options_.layouts.size(); ++i) {
    if (options_.layouts[i]) outside().set_layout(inputs[i], *options_.layouts[i]);
  }
  for (const at::Tensor& input : inputs) inputs_.push_back(input.unsafeGetTensorImpl());
  tracer_->generators().start();
  enter();
  results_ = call(function, lift(inputs));
  outside().check_grads();
  outside().restore_histories();
  restore_shapes(outside());
  find_new_accumulators();
  // Whatever the function returns counts when it is asked which tensors share memory.
  for (const at::Tensor& result : results_) {
    if (result.defined() && !is_traced(result)) outside().lift(result);
  }
}

std::vector<at::Tensor> OpenTrace::lift(const std::vector<at::Tensor>& inputs) {
  std::vector<at::Tensor> wrappers;
  wrappers.reserve(inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].defined()) {
      throw UserError("trace", "argument " + std::to_string(i) +
                                   ": it is an undefined tensor. Leave it out, or capture it.");
    }
    wrappers.push_back(outside().lift_primal(inputs[i], static_cast<int32_t>(i)));
  }
  return wrappers;
}

std::vector<at::Tensor> OpenTrace::call(const aot::FlatFunction& function,
                                        std::vector<at::Tensor> inputs) {
  try {
    return function(inputs);
  } catch (const DataDependent&) {
    throw;
  } catch (const c10::Error& error) {
    check_no_aliased_writes(outside());
    explain(error);
    throw;
  }
}

/// set_() and resize_() give a leaf another accumulator.
void OpenTrace::find_new_accumulators() {
  for (Lifted& lifted : outside().lifted()) {
    if (lifted.link == GradLink::None || lifted.link == GradLink::Boundary) continue;
    if (!lifted.wrapper.is_leaf() || !lifted.wrapper.requires_grad()) continue;
    const NodePtr now = torch::autograd::impl::grad_accumulator(lifted.wrapper);
    if (now == lifted.node) continue;
    old_accumulators_.push_back(std::exchange(lifted.node, now));
  }
}

at::Tensor OpenTrace::add_output(const at::Tensor& tensor, Slot slot) {
  if (!tensor.defined()) {
    graph().add_output(nullptr, slot);
    return tensor;
  }
  const at::Tensor& traced = is_traced(tensor) ? tensor : outside().lift(tensor);
  graph().add_output(value_of(traced), slot, traced.requires_grad());
  return traced;
}

void OpenTrace::enter() {
  scope_.emplace(*tracer_);
  grad_mode_.emplace(at::GradMode::is_enabled());
}

void OpenTrace::leave() {
  grad_mode_.reset();
  scope_.reset();
  if (std::exchange(is_clean_, true)) return;
  tracer_->generators().abandon();
  outside().restore_histories();
  restore_shapes(outside());
  restore_grads();
}

Graph OpenTrace::close() {
  leave();
  return tracer_->close();
}

void OpenTrace::restore_grads() {
  for (const Lifted& lifted : outside().lifted()) {
    if (lifted.link != GradLink::SharedLeaf) continue;
    const at::Tensor& grad = lifted.real.unsafeGetTensorImpl()->grad();
    if (grad.defined() && is_traced(grad)) lifted.real.mutable_grad() = lifted.original_grad;
  }
}

std::unique_ptr<OpenTrace> trace_forward(const aot::FlatFunction& function,
                                         const std::vector<at::Tensor>& inputs,
                                         const ForwardOptions& options) {
  auto open = std::make_unique<OpenTrace>(options);
  open->run(function, inputs);
  return open;
}

}  // namespace ahead::tracing
