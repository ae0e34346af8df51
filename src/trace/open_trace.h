#pragma once

#include <ATen/core/grad_mode.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "ahead/executable.h"
#include "ir/sizes/layout.h"
#include "trace/tracer.h"

namespace ahead::tracing {

class OpenTrace;

/// How a function is traced.
struct ForwardOptions {
  TraceOptions trace = {};
  /// Whether its gradient is to be traced, too.
  bool joint = true;
  /// Whether the tensors that it makes are watched, since the trace will not be closed soon.
  bool watches_tensors = false;
  /// For inputs whose layout may change: that of each, nothing for those that are fixed.
  std::vector<std::optional<Layout>> layouts = {};
  /// Notes what is decided by sizes that change; null: none changes.
  std::shared_ptr<SizeGuards> size_guards = nullptr;
  /// Finds out what a tensor of the graph holds in this trace, where sizes are read from tensors;
  /// null: none is.
  std::function<int64_t(const OpenTrace&, const Value&)> read_size = nullptr;
};

/// A function that was run under a tracer, whose trace can go on: its results can be looked at and
/// differentiated. Whatever happens, nothing of the trace stays behind in tensors from outside.
///
/// The thread is inside the trace from run() or enter() until leave() or close().
class OpenTrace {
 public:
  explicit OpenTrace(const ForwardOptions& options);
  ~OpenTrace();
  OpenTrace(const OpenTrace&) = delete;
  OpenTrace& operator=(const OpenTrace&) = delete;

  const c10::intrusive_ptr<Tracer>& tracer() const { return tracer_; }
  GraphWriter& writer() const { return tracer_->writer(); }
  Outside& outside() const { return tracer_->outside(); }
  Graph& graph() const { return writer().graph(); }
  const ForwardOptions& options() const { return options_; }
  /// Since the trace was made.
  double seconds() const;

  /// Enters the trace, for operators to be recorded.
  void enter();
  /// Enters the trace and runs the function on what stands for the inputs.
  void run(const aot::FlatFunction& function, const std::vector<at::Tensor>& inputs);
  /// The arguments, by identity: they may be gone.
  const std::vector<const c10::TensorImpl*>& inputs() const { return inputs_; }
  /// What the function returned.
  const std::vector<at::Tensor>& results() const { return results_; }
  /// The same; the trace has it no longer.
  std::vector<at::Tensor> take_results() { return std::move(results_); }
  /// Accumulators that leaves from outside had before set_() or resize_() in the function.
  const std::vector<NodePtr>& old_accumulators() const { return old_accumulators_; }

  /// Adds a tensor, which may be one from outside or undefined, to the graph's outputs. Returns
  /// what stands for it in the trace.
  at::Tensor add_output(const at::Tensor& tensor, Slot slot);

  /// Leaves the trace, which stays open. Tensors from outside are as they were before.
  void leave();
  /// Ends the trace. Left already, or not.
  Graph close();

 private:
  std::vector<at::Tensor> lift(const std::vector<at::Tensor>& inputs);
  std::vector<at::Tensor> call(const aot::FlatFunction& function, std::vector<at::Tensor> inputs);
  void find_new_accumulators();
  void restore_grads();

  const ForwardOptions options_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  const c10::intrusive_ptr<Tracer> tracer_;
  std::vector<const c10::TensorImpl*> inputs_;
  std::vector<at::Tensor> results_;
  std::vector<NodePtr> old_accumulators_;
  bool is_clean_ = false;  ///< tensors from outside are as they were before
  std::optional<TraceScope> scope_;
  std::optional<at::AutoGradMode> grad_mode_;  ///< puts back the mode of the caller
};

/// Runs a function under a tracer.
std::unique_ptr<OpenTrace> trace_forward(const aot::FlatFunction& function,
                                         const std::vector<at::Tensor>& inputs,
                                         const ForwardOptions& options = {});

}  // namespace ahead::tracing
