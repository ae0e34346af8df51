#pragma once

#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <algorithm>
#include <cstdint>
#include <memory>

namespace models {

/// While it exists, follows how much memory CPU tensors of this thread take. Tensors that were
/// allocated before do not count.
class MemoryCounter {
 public:
  /// The most bytes that were in use at once while a function ran, beyond those in use before.
  template <class Function>
  int64_t peak(Function&& function) {
    const int64_t before = report_->now;
    report_->peak = before;
    function();
    return report_->peak - before;
  }

 private:
  /// LibTorch's allocator reports to whoever stands where a profiler would.
  struct Report final : c10::MemoryReportingInfoBase {
    void reportMemoryUsage(void*, int64_t bytes, size_t, size_t, c10::Device) override {
      now += bytes;
      peak = std::max(peak, now);
    }
    bool memoryProfilingEnabled() const override { return true; }

    int64_t now = 0, peak = 0;
  };

  std::shared_ptr<Report> report_ = std::make_shared<Report>();
  c10::DebugInfoGuard guard_{c10::DebugInfoKind::PROFILER_STATE, report_};
};

}  // namespace models
