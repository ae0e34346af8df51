#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/core/Storage.h>

#include <torch/csrc/autograd/variable.h>

#include <functional>
#include <unordered_map>
#include <vector>

#include "ahead/graph.h"
#include "base/libtorch.h"

namespace ahead {
class SavedTensorPacker;
}

namespace ahead::runtime {

/// What a function read and wrote of tensors that were there before it.
class OutsideTensors {
 public:
  /// A tensor from outside, and how it lay when it was met first.
  struct Met {
    c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl> tensor;
    std::vector<int64_t> sizes, strides;
    int64_t offset;
  };

  /// What a tensor is to autograd, and how it lies, which a second run must not change.
  class Kept {
   public:
    /// Lets the tensor lie as when it was met.
    Kept(at::Tensor tensor, const Met& met);
    /// Lets the tensor be what it was.
    void restore() const;

   private:
    at::Tensor tensor_;
    std::vector<int64_t> sizes_, strides_;
    int64_t offset_;
    NodePtr history_;
    uint32_t output_nr_ = 0;
    uint32_t attr_version_ = 0;
    std::shared_ptr<torch::autograd::hooks_list> hooks_;
  };

  /// Throws, as eager's autograd does, if a tensor was read that has been written to since.
  void check_unwritten() const;

  /// Lets tensors that the function wrote to be as they were before, contents and versions, until
  /// its end. Then they are again what they are now, shapes and histories included.
  class Rewind {
   public:
    explicit Rewind(const OutsideTensors& outside);
    ~Rewind();
    Rewind(const Rewind&) = delete;
    Rewind& operator=(const Rewind&) = delete;

   private:
    const OutsideTensors& outside_;
    std::vector<at::Tensor> contents_;
    std::vector<uint32_t> versions_;
    std::vector<Kept> kept_;
  };

 private:
  friend class RegionWatch;
  struct Read {
    c10::VariableVersion counter;
    uint32_t version;
    const c10::StorageImpl* storage;
    TensorMeta meta;
  };
  struct WrittenStorage {
    c10::Storage storage;
    at::Tensor contents;  ///< before the first write
  };
  struct WrittenVersion {
    c10::VariableVersion counter;
    uint32_t version;
  };
  bool is_written(const c10::StorageImpl* storage) const;

  std::vector<Read> reads_;
  std::vector<WrittenStorage> storages_;
  std::vector<WrittenVersion> versions_;
  /// The tensors that may have got a history by that: views and bases of what was written to, too.
  std::vector<Met> rebased_;
};

/// While it exists, watches the operators that this thread calls.
class RegionWatch {
 public:
  /// Called after each operator with its results.
  using Ended = std::function<void(const Operator& op, const std::vector<at::Tensor>& results)>;

  RegionWatch(OutsideTensors& outside, Ended ended);
  ~RegionWatch();
  RegionWatch(const RegionWatch&) = delete;
  RegionWatch& operator=(const RegionWatch&) = delete;

 private:
  friend struct WatchCallbacks;
  using Storages = std::vector<const c10::StorageImpl*>;
  void start(const Operator& op, c10::ArrayRef<const c10::IValue> inputs);
  void end(const Operator& op, const Storages& inputs, const std::vector<c10::IValue>& outputs);
  const Storages* outermost_inputs() const;
  bool is_made_here(const at::Tensor& tensor) const;
  void note_read(const at::Tensor& tensor);
  void note_write(const at::Tensor& tensor);
  void note_history(const at::Tensor& tensor);

  OutsideTensors& outside_;
  const Ended ended_;
  const size_t depth_;  ///< of operators inside operators, when the watch began
  std::unordered_map<const c10::StorageImpl*, c10::weak_intrusive_ptr<c10::StorageImpl>> made_here_;
  std::unordered_map<const c10::TensorImpl*, c10::weak_intrusive_ptr<c10::TensorImpl>> seen_;
  std::unordered_map<const c10::TensorImpl*, c10::weak_intrusive_ptr<c10::TensorImpl>> written_;
};

/// While it exists, checkpoints that there are notice nothing of what this thread does: watches see
/// no operators, and autograd saves tensors itself.
class CheckpointPause {
 public:
  CheckpointPause();
  ~CheckpointPause();
  CheckpointPause(const CheckpointPause&) = delete;
  CheckpointPause& operator=(const CheckpointPause&) = delete;

 private:
  SavedTensorPacker* const packer_;
  std::vector<RegionWatch*> watches_;
};

}  // namespace ahead::runtime
