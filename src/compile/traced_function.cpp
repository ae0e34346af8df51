#include "compile/traced_function.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "ahead/errors.h"
#include "ahead/partition.h"
#include "base/autocast.h"
#include "checkpoint/region_watch.h"
#include "derivative/forward_cone.h"
#include "ir/slots.h"
#include "observe/state/entry_state.h"
#include "ops/facts/node_facts.h"
#include "plan/strided_views.h"
#include "plan/synthetic_base.h"
#include "random/generator_state.h"
#include "runtime/call/call.h"
#include "trace/analysis/function_meta.h"
#include "trace/backward_trace.h"
#include "trace/open_trace.h"

namespace ahead::compiling {
namespace {

/// Autocast as it is now. A graph cannot switch it, so a function that leaves it otherwise cannot
/// be compiled; whatever happens, it is put back.
class AutocastRestore {
 public:
  ~AutocastRestore() { before_.apply(); }

  void check_unchanged() const {
    if (AutocastState::current() == before_) return;
    throw Unsupported("compile",
                      "autocast: the function leaves it in another state than it found it. "
                      "(AOTAutograd does not support tracing graphs that mutate the autocast "
                      "state.) Switch it outside, or with a guard inside.");
  }

 private:
  const AutocastState before_ = AutocastState::current();
};

/// The autocast that the user wants for the backward, whatever there is when it runs.
std::optional<AutocastState> fixed_autocast(const BackwardAutocastChoice& choice) {
  if (choice.kind() == BackwardAutocast::AsCalled) return std::nullopt;
  AutocastState state = AutocastState::current();
  if (choice.kind() == BackwardAutocast::SameAsForward) return state;
  state = state.off();
  for (const AutocastSetting& setting : choice.settings()) {
    for (AutocastState::Device& device : state.devices) {
      if (device.type == setting.device) device = {setting.device, true, setting.dtype};
    }
  }
  return state;
}

void check_settings(const BackwardAutocastChoice& choice) {
  for (const AutocastSetting& setting : choice.settings()) {
    if (setting.device == at::kCPU || setting.device == at::kCUDA) continue;
    throw UserError("compile",
                    "Options::backward_autocast: " + c10::DeviceTypeName(setting.device) +
                        " has no autocast here. Name CPU and CUDA only.");
  }
}

/// Traces a function with its gradient, even where grad mode is off: the function may switch it on.
tracing::JointTrace trace_joint(const aot::FlatFunction& function,
                                const std::vector<at::Tensor>& inputs, const TraceOptions& options,
                                const std::optional<AutocastState>& backward_autocast) {
  std::unique_ptr<tracing::OpenTrace> open =
      tracing::trace_forward(function, inputs, {.trace = options});
  tracing::FunctionMeta meta = tracing::analyse(*open);
  return tracing::trace_backward(std::move(open), std::move(meta), backward_autocast);
}

/// Throws Unsupported if eager's writes to inputs give others histories that no graph has.
void check_writes(const Graph& graph, const CallFrame& frame,
                  const std::vector<at::Tensor>& inputs) {
  if (frame.epilogue.writes.empty()) return;
  check_aliases_of_written(inputs);
  check_strided_views(graph, frame.epilogue.writes, runtime::graph_inputs(frame.prologue, inputs));
}

/// Traces a function, over synthetic bases if need be.
TracedFunction trace_once(const aot::FlatFunction& function, const std::vector<at::Tensor>& inputs,
                          const TraceOptions& options,
                          const std::optional<AutocastState>& backward_autocast) {
  // What autograd saves while tracing is no business of a checkpoint around the compiled function.
  const runtime::CheckpointPause unseen;
  const AutocastRestore autocast;
  TracedFunction traced;
  try {
    traced.trace = trace_joint(function, inputs, options, backward_autocast);
    traced.frame = frame_of(traced.trace);
    check_writes(traced.trace.graph, traced.frame, inputs);
    traced.function = function;
    traced.inputs = inputs;
  } catch (const tracing::AliasedWrite&) {
    const MergedArguments merged(function, inputs);
    traced.trace = trace_joint(merged.function(), merged.inputs(), options, backward_autocast);
    CallFrame frame = frame_of(traced.trace);
    check_writes(traced.trace.graph, frame, merged.inputs());
    traced.frame = merged.adapted(std::move(frame));
    traced.is_merged = true;
    traced.function = merged.function();
    traced.inputs = merged.inputs();
  }
  autocast.check_unchanged();
  return traced;
}

/// Traces, and tells of an error of LibTorch's that it was thrown by a trace.
template <class Trace>
auto trace_explained(const Options& options, Trace&& trace) {
  try {
    return trace();
  } catch (const Error&) {
    throw;
  } catch (c10::Error& error) {
    if (!options.fullgraph) {
      throw Unsupported("compile",
                        "LibTorch complains about the function as it is traced, though not about "
                        "the function itself: " +
                            error.msg());
    }
    error.add_context(
        "[compile] thrown while tracing; without Options::fullgraph the call would "
        "run eagerly");
    throw;
  }
}

/// Whether a function writes to a part of a tensor that has a gradient. Autograd has other formulas
/// for that than for the operator that stands for it in the graph.
bool writes_to_parts(const Graph& graph) {
  const std::vector<bool> depends = find_dependent(graph);
  const auto has_gradient = [&](const Value* result) {
    return result != nullptr && depends[result->id()];
  };
  for (const Node& node : graph.nodes()) {
    const std::string& name = node.op().name();
    if (node.phase == Phase::Forward && name.find("_scatter") != std::string::npos &&
        std::any_of(node.results().begin(), node.results().end(), has_gradient))
      return true;
  }
  return false;
}

/// Whether the forward of a joint graph draws no random numbers, has no effects and changes no
/// input, and gradients flow through its operators to all results that have one.
bool is_pure(const Graph& joint, const runtime::Epilogue& epilogue) {
  if (!epilogue.writes.empty() || !epilogue.resets.empty()) return false;
  for (const Node& node : joint.nodes()) {
    if (node.phase == Phase::Forward && ops::is_ordered(node)) return false;
  }
  const std::vector<bool> depends = find_dependent(joint);
  for (const Graph::Input& input : joint.inputs()) {
    if (input.slot.kind != Slot::Kind::Tangent) continue;
    const Value* result = joint.outputs()[static_cast<size_t>(input.slot.index)].value;
    if (!depends[result->id()]) return false;
  }
  return true;
}

/// Whether a trace that is made later meets an input as this one did, though it was written to:
/// autograd does not see it, or saw it only in the argument that a new tensor stands for then.
bool looks_alike_later(const TracedFunction& traced, const runtime::Epilogue::Write& write) {
  const auto place = static_cast<size_t>(write.input);
  const runtime::Prologue::Input& input = traced.frame.prologue.inputs[place];
  if (write.geometry) return false;
  if (input.kind == runtime::Prologue::Input::Kind::Argument) {
    const at::Tensor& argument = traced.inputs[static_cast<size_t>(input.index)];
    return !argument.is_inference() && !argument.is_view();
  }
  return !write.seen_by_autograd && !traced.trace.graph.inputs()[place].value->meta.requires_grad;
}

/// Whether the function's gradient can be found by running its operators once more.
bool can_run_again(const TracedFunction& traced) {
  if (is_pure(traced.trace.graph, traced.frame.epilogue)) return true;
  const JointGraph joint(traced.trace.graph);
  return ForwardCone(joint, partition_default(joint)).why_not(traced.frame.epilogue).empty();
}

/// Traces what a subject is now.
TracedFunction trace_now(const Subject& subject, const Options& options) {
  const std::optional<AutocastState> fixed = fixed_autocast(options.backward_autocast);
  const AutocastState now = AutocastState::current();
  const TraceOptions how{.record_places = options.record_places};
  const auto trace = [&](const std::optional<AutocastState>& backward_autocast) {
    return trace_explained(options, [&] {
      return trace_once(subject.function, subject.inputs, how, backward_autocast);
    });
  };
  TracedFunction traced = trace(fixed);
  const std::optional<Culprit> cast = traced.trace.cast_in_backward;
  const bool depends = !fixed && cast;
  if (depends && !options.double_backward) {
    throw Unsupported("compile",
                      cast->name +
                          ": autocast casts what this operator of the backward takes, but only if "
                          "the backward runs inside autocast, too. Allow Options::double_backward, "
                          "or choose an autocast with Options::backward_autocast.");
  }
  if (depends) traced = trace(now.off());
  traced.autocast = {fixed, traced.trace.castable_in_backward, std::nullopt};
  if (!depends) traced.autocast.right_for = now;
  return traced;
}

}  // namespace

TracedFunction trace_function(Subject& subject, const Options& options) {
  check_settings(options.backward_autocast);
  TracedFunction traced;
  do {
    traced = trace_now(subject, options);
  } while (subject.changes && subject.changes(subject));
  traced.static_arguments = subject.static_arguments;
  traced.constants = subject.constants;
  return traced;
}

/// Nothing watches generators when derivatives are traced later on.
bool sets_generators(const Graph& joint) {
  for (const Node& node : joint.nodes()) {
    if (node.phase == Phase::Backward && &node.op() == &set_generator_state_operator()) return true;
  }
  return false;
}

void TracedFunction::forget_captured() {
  for (const Graph::Input& input : trace.graph.inputs())
    captured.emplace_back(input.captured.getIntrusivePtr());
  trace.graph.forget_captured();
}

bool needs_open_trace(const TracedFunction& traced, const Options& options) {
  const tracing::JointTrace& trace = traced.trace;
  if (!options.double_backward || !has_tangents(trace.graph) || trace.has_backward_writes())
    return false;
  if (sets_generators(trace.graph)) return false;
  return trace.opaque_gradient || trace.hidden_write || writes_to_parts(trace.graph) ||
         !can_run_again(traced);
}

/// What changes its shape or memory, or is one of several tensors with the same memory, may look
/// otherwise then.
bool can_be_traced_later(const TracedFunction& traced) {
  for (const Node& node : traced.trace.graph.nodes()) {
    if (node.phase == Phase::Forward && ops::has_effect(node)) return false;
  }
  const runtime::Epilogue& epilogue = traced.frame.epilogue;
  return !traced.is_merged && epilogue.resets.empty() &&
         std::all_of(epilogue.writes.begin(), epilogue.writes.end(),
                     [&](const auto& write) { return looks_alike_later(traced, write); }) &&
         epilogue.new_grads.empty() && epilogue.requires_grad_changes.empty() &&
         !traced.trace.differentiates;
}

std::unique_ptr<tracing::DifferentiableTrace> open_trace(const TracedFunction& traced,
                                                         const Options& options) {
  const runtime::CheckpointPause unseen;
  const AutocastRestore autocast;
  std::vector<at::Tensor> captured;
  for (const observe::WeakTensor& one : traced.captured) captured.push_back(observe::lock(one));
  return trace_explained(options, [&] {
    return tracing::DifferentiableTrace::make(traced.function, traced.inputs, traced.trace.graph,
                                              captured);
  });
}

}  // namespace ahead::compiling
