#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

#include <deque>
#include <vector>

#include "trace/dispatch/traced_call.h"
#include "trace/tensor/fake_tensor.h"

namespace ahead::tracing {

/// Knows which tensors of a trace are alive.
class LiveTensors {
 public:
  /// A new fake tensor holds this value. Where it is noted, the tensor writes null when it goes.
  Holder& note_fake(const Value* value) { return holders_.emplace_back(value); }
  /// What the fake tensors hold that are still alive. To be called when the trace let go of its
  /// own.
  std::vector<const Value*> escaped() const;

  /// User code is about to call an operator.
  void before(const TracedCall& call);
  /// It has been called and returns new tensors.
  void after(const TracedCall& call);

  /// Functionalisation is about to replace the fake tensor behind a traced one. It is held, since
  /// code in this trace may still refer to its sizes, as in eager while the tensor is alive.
  void hold_replaced(const at::Tensor& traced);
  void forget_replaced() { replaced_.clear(); }

  /// From now on the traced tensors that user code has are watched.
  void start_watching() { is_watching_ = true; }
  /// The watched tensors that are still alive, each once.
  std::vector<at::Tensor> watched() const;
  /// Ends the watch. A weak pointer to a dead tensor leaves its members alive, and these hold the
  /// tracer.
  void forget_watched() { watched_.clear(); }

 private:
  void watch(const at::Tensor& traced);

  std::deque<Holder> holders_;
  std::vector<at::Tensor> replaced_;
  bool is_watching_ = false;
  std::vector<c10::weak_intrusive_ptr<c10::TensorImpl>> watched_;
  static constexpr size_t kFirstSweep = 256;
  size_t next_sweep_ = kFirstSweep;  ///< how many entries until those of dead tensors are removed
};

}  // namespace ahead::tracing
