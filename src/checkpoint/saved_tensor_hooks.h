#pragma once

#include <torch/csrc/autograd/saved_variable_hooks.h>

#include <memory>

namespace ahead::runtime {

/// Decides what autograd keeps of the tensors that it saves.
class SavedTensorKeeper {
 public:
  virtual ~SavedTensorKeeper() = default;
  /// The hooks of the next tensor to be saved.
  virtual std::unique_ptr<torch::autograd::SavedVariableHooks> make_hooks() = 0;
};

/// While it exists, tensors that autograd saves on this thread go to a keeper. The innermost one
/// counts.
class KeeperScope {
 public:
  explicit KeeperScope(SavedTensorKeeper& keeper);
  ~KeeperScope();
  KeeperScope(const KeeperScope&) = delete;
  KeeperScope& operator=(const KeeperScope&) = delete;

  /// Whether there is a keeper on this thread.
  static bool is_active();

  /// While it exists, autograd saves tensors itself.
  class Pause {
   public:
    Pause();
    ~Pause();
    Pause(const Pause&) = delete;
    Pause& operator=(const Pause&) = delete;

   private:
    SavedTensorKeeper* paused_;
  };

 private:
  SavedTensorKeeper* outer_;
};

}  // namespace ahead::runtime
