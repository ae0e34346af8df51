#pragma once

#include <torch/csrc/autograd/saved_variable.h>

#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "ahead/checkpoint.h"
#include "checkpoint/region_watch.h"
#include "checkpoint/saved_tensor_hooks.h"
#include "observe/recorder/effect_replay.h"
#include "runtime/call/surroundings.h"

namespace ahead::runtime {

/// An argument of a checkpointed call. Inside another checkpointed call it is saved there, so that
/// it need not stay in memory.
class CheckpointArgument {
 public:
  explicit CheckpointArgument(const at::Tensor& tensor);
  /// A tensor over the same memory, with a gradient where the argument had one but without history.
  at::Tensor unpack() const;

 private:
  at::Tensor tensor_;
  torch::autograd::SavedVariable saved_;
  bool requires_grad_, is_leaf_;
};

/// One checkpointed call: what autograd saves in it is numbered rather than saved, and computed
/// again when it is asked for. Held by the autograd nodes of the call.
class CheckpointFrame final : public SavedTensorPacker,
                              public std::enable_shared_from_this<CheckpointFrame> {
 public:
  CheckpointFrame(const CheckpointPolicy& policy, const std::vector<at::Tensor>& leaves,
                  detail::RepeatedCall again);

  /// While it exists, the call runs for the first time.
  class FirstRun {
   public:
    explicit FirstRun(CheckpointFrame& frame);
    ~FirstRun();
    FirstRun(const FirstRun&) = delete;
    FirstRun& operator=(const FirstRun&) = delete;

   private:
    CheckpointFrame& frame_;
    PackerScope packer_;
    RegionWatch watch_;
  };

  std::unique_ptr<torch::autograd::SavedVariableHooks> make_hooks() override;
  /// Takes note of the next tensor that is saved; returns its number.
  size_t pack(const at::Tensor& tensor);
  at::Tensor unpack(size_t number);
  /// Throws what the policy threw.
  void rethrow_problem();

 private:
  /// A tensor and its version when it was saved.
  struct Versioned {
    at::Tensor tensor;
    uint32_t version = 0;
  };
  /// A tensor that was saved in the first run.
  struct Packed {
    at::ScalarType dtype;
    at::Device device;
    c10::SmallVector<int64_t, 5> sizes;
    Versioned saved;  ///< undefined unless the policy saves it
  };
  class SecondRun;

  /// Its memory, without history, at its version.
  static Versioned note(const at::Tensor& tensor);
  bool is_saved_by_policy(const at::Tensor& tensor) const;
  void end_operator(const Operator& op, const std::vector<at::Tensor>& results);
  void note_effect(const Operator& op, const std::vector<at::Tensor>& results);
  std::optional<Saving> ask_policy(const Operator& op);
  void run_again(int64_t task);
  void check_same(const std::vector<Versioned>& again) const;
  static at::Tensor checked(const Versioned& saved);

  const CheckpointPolicy policy_;
  const detail::RepeatedCall again_;
  std::vector<CheckpointArgument> arguments_;
  const Surroundings surroundings_;
  OutsideTensors outside_;
  /// What the first run did besides computing: it does not happen again.
  std::vector<observe::EffectCall> effects_;
  bool is_first_run_ = true;

  std::mutex mutex_;
  std::exception_ptr problem_;
  std::vector<Packed> packed_;
  /// Storages that the policy saves, while the first run lasts.
  std::unordered_map<const c10::StorageImpl*, c10::weak_intrusive_ptr<c10::StorageImpl>>
      saved_storages_;
  /// Saved by operators that have not ended yet.
  std::vector<std::pair<size_t, Versioned>> pending_;
  /// What was computed again, and for which backward.
  std::vector<Versioned> recomputed_;
  int64_t task_ = -1;
};

}  // namespace ahead::runtime
