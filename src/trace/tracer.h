#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

#include <atomic>
#include <deque>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "ahead/graph.h"
#include "ahead/trace.h"
#include "base/libtorch.h"
#include "trace/graph_writer.h"
#include "trace/observers/generator_watch.h"
#include "trace/outside.h"
#include "trace/tensor/fake_tensor.h"

namespace ahead {
class CheckpointPolicy;
}

namespace ahead::tracing {

/// One run of the user's code, being written down as a graph.
///
/// Fake tensors hold their tracer, so that it is found on any thread and outlives its trace; after
/// close() it only serves to explain what went wrong.
class Tracer : public c10::intrusive_ptr_target {
 public:
  explicit Tracer(TraceOptions options);

  /// The tracer of the running trace, also on the engine's device threads; null outside of one.
  static Tracer* current();

  const TraceOptions& options() const { return options_; }
  GraphWriter& writer() { return writer_; }
  const GraphWriter& writer() const { return writer_; }
  Outside& outside() { return outside_; }
  const Outside& outside() const { return outside_; }
  /// Whether grad mode is on where user code calls the operator now being traced.
  void set_grad_mode(bool enabled) { grad_mode_ = enabled; }
  bool is_closed() const { return closed_; }
  /// Whether the trace was begun in inference mode. It runs outside of it, since LibTorch cannot
  /// make functional views there; the graph's caller gets inference tensors by itself.
  bool in_inference_mode() const { return in_inference_mode_; }

  /// A view was given another shape in place, or made by as_strided of another view: a write to
  /// their memory cannot be followed.
  void note_fragile_view(const at::Tensor& traced, const Operator& op);
  /// The operator noted for the memory of this tensor; null if there is none.
  const Operator* fragile_view(const at::Tensor& traced) const;

  /// A view of a differentiable tensor was made that has no history: a write to their memory is
  /// hidden from autograd.
  void note_detached(const at::Tensor& traced);
  /// After an operator wrote to a traced tensor and left it the history it had, or not: notes it if
  /// autograd does not know.
  void note_write(const at::Tensor& written, bool has_same_history, const Operator& op);
  /// An operator took the history of a traced tensor away (detach_), which no node tells.
  void note_cut_history(const Operator& op) { hidden_write_ = &op; }
  /// An operator that wrote without autograd's knowledge, or cut a history; null if there is none.
  const Operator* hidden_write() const { return hidden_write_; }

  /// An operator that autocast may cast for is about to be called in the backward on floating-point
  /// tensors of this type; none: of several types.
  void watch_casts(const Operator& op, std::optional<at::ScalarType> dtype) {
    watched_op_ = &op;
    uncast_ = dtype;
  }
  void stop_watching_casts() { watched_op_ = nullptr; }
  /// A floating-point tensor of this type reached a kernel.
  void note_dtype(at::ScalarType dtype) {
    if (watched_op_ != nullptr && uncast_ != dtype) cast_in_backward_ = watched_op_;
  }
  /// It returned a floating-point tensor of another type than it was given.
  void note_cast_result() { cast_in_backward_ = watched_op_; }
  /// An operator of the backward for which autocast cast something; null if there is none.
  const Operator* cast_in_backward() const { return cast_in_backward_; }
  /// An operator of the backward takes tensors that autocast could cast, were it on.
  void note_castable(const Operator& op) { castable_in_backward_ = &op; }
  /// One of these operators; null if there is none.
  const Operator* castable_in_backward() const { return castable_in_backward_; }

  /// An operator wrote to this tensor in a list, which functionalisation does not count as a write.
  void count_list_write(const at::Tensor& traced) { ++list_writes_[traced.unsafeGetTensorImpl()]; }
  uint64_t list_writes(const at::Tensor& traced) const {
    const auto known = list_writes_.find(traced.unsafeGetTensorImpl());
    return known == list_writes_.end() ? 0 : known->second;
  }

  /// Begins or ends to watch generators of random numbers; see generator_watch.h.
  void watch_generators() { generators_ = std::make_unique<GeneratorWatch>(); }
  void stop_watching_generators() {
    generators_->check();
    generators_.reset();
  }
  /// The same without looking at them, where something else went wrong.
  void abandon_generators() { generators_.reset(); }
  /// Null if they are not watched.
  GeneratorWatch* generators() { return generators_.get(); }

  /// From now on nodes carry tags for what this policy says of their operator, until
  /// leave_checkpoint.
  void enter_checkpoint(const CheckpointPolicy& policy) { checkpoints_.push_back(&policy); }
  void leave_checkpoint() { checkpoints_.pop_back(); }
  /// Tags a node as the innermost checkpointed call that the function is in wants it; outside of
  /// all of them, as one to be saved.
  void tag_for_checkpoint(Node& node) const;

  /// A node was written for an operator that user code calls, or that one of those calls.
  void note_node(Node& node);

  /// Notes a new fake tensor. Where it is noted, it writes null when it goes.
  Holder& note_holder(const Value* value) { return holders_.emplace_back(value); }
  /// What the fake tensors hold that are still alive. To be called when the trace let go of its
  /// own.
  std::vector<const Value*> escaped() const;

  /// Something else is about to take the place of what a traced tensor holds. Code that runs in
  /// this trace may still refer to its sizes, as it may in eager while the tensor is there.
  void keep_replaced(const at::Tensor& traced);
  void forget_replaced() { replaced_.clear(); }

  /// From now on tensors that user code gets are watched.
  void watch_tensors() { watches_tensors_ = true; }
  bool watches_tensors() const { return watches_tensors_; }
  /// User code gets this tensor.
  void watch(const at::Tensor& tensor) {
    if (watches_tensors_) add_watched(tensor);
  }
  /// Those that are still alive, each once.
  std::vector<at::Tensor> watched() const;
  /// How often each watched tensor that is still alive has been written to.
  using WriteCounts = std::vector<std::pair<c10::weak_intrusive_ptr<c10::TensorImpl>, uint64_t>>;
  WriteCounts count_writes() const;
  /// Whether one of them has been written to since.
  static bool has_written_since(const WriteCounts& before);
  /// Lets go of what is watched. A tensor that is gone keeps what it was made of as long as
  /// somebody watches it, and that in turn keeps its tracer.
  void stop_watching() { watched_.clear(); }

  /// Ends the trace and gives the graph away.
  Graph close();

 private:
  void add_watched(const at::Tensor& tensor);

  TraceOptions options_;
  GraphWriter writer_{*this};
  Outside outside_{*this};
  bool grad_mode_ = true;
  const bool in_inference_mode_;
  std::atomic<bool> closed_ = false;
  std::unordered_set<const c10::StorageImpl*> detached_storages_;
  std::unordered_map<const c10::StorageImpl*, const Operator*> fragile_storages_;
  const Operator* hidden_write_ = nullptr;
  const Operator* watched_op_ = nullptr;
  std::optional<at::ScalarType> uncast_;
  const Operator* cast_in_backward_ = nullptr;
  const Operator* castable_in_backward_ = nullptr;
  std::vector<const CheckpointPolicy*> checkpoints_;
  std::unique_ptr<GeneratorWatch> generators_;
  std::unordered_map<const c10::TensorImpl*, uint64_t> list_writes_;
  std::deque<Holder> holders_;
  std::vector<at::Tensor> replaced_;
  bool watches_tensors_ = false;
  std::vector<c10::weak_intrusive_ptr<c10::TensorImpl>> watched_;
  static constexpr size_t kFirstSweep = 256;
  size_t next_sweep_ = kFirstSweep;  ///< how many entries until those of dead tensors are removed
};

/// Makes a tracer current, puts the tracing keys into effect, and undoes both at the end.
class TraceScope {
 public:
  explicit TraceScope(Tracer& tracer);
  ~TraceScope();
  TraceScope(const TraceScope&) = delete;
  TraceScope& operator=(const TraceScope&) = delete;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ahead::tracing
