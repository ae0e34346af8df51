#pragma once

#include <atomic>
#include <memory>

#include "ahead/executable.h"
#include "ahead/interpret.h"

namespace ahead::native {

/// A graph that runs operator by operator until its kernels are ready.
class EarlyStart {
 public:
  /// `counts`: where runs without kernels are counted; may be null.
  EarlyStart(const Graph& graph, std::shared_ptr<aot::KernelCounts> counts)
      : without_kernels_(std::make_shared<const Interpreter>(graph)), counts_(std::move(counts)) {}

  /// All runs that begin from now on are by this.
  void switch_to(std::shared_ptr<const Interpreter> with_kernels) {
    with_kernels_.store(std::move(with_kernels));
  }

  /// What a run that begins now is by.
  std::shared_ptr<const Interpreter> now() const {
    if (std::shared_ptr<const Interpreter> ready = with_kernels_.load()) return ready;
    if (counts_ != nullptr) ++counts_->early_runs;
    return without_kernels_;
  }

 private:
  const std::shared_ptr<const Interpreter> without_kernels_;
  const std::shared_ptr<aot::KernelCounts> counts_;
  std::atomic<std::shared_ptr<const Interpreter>> with_kernels_{};
};

}  // namespace ahead::native
