#include "trace/observers/live_tensors.h"

#include <chrono>
#include <thread>
#include <unordered_set>

#include "trace/tensor/functional.h"

namespace ahead::tracing {

/// The engine's threads, one for each device but the CPU, let go of what they ran a little after
/// they have said that they are done.
std::vector<const Value*> LiveTensors::escaped() const {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point deadline = Clock::now() + std::chrono::milliseconds(500);
  std::vector<const Value*> values;
  for (const Holder& holder : holders_) {
    const Value* value = holder.load(std::memory_order_acquire);
    if (value == nullptr) continue;
    if (!value->meta.device.is_cpu()) {
      while (holder.load(std::memory_order_acquire) != nullptr && Clock::now() < deadline)
        std::this_thread::yield();
      if (holder.load(std::memory_order_acquire) == nullptr) continue;
    }
    values.push_back(value);
  }
  return values;
}

void LiveTensors::before(const TracedCall& call) {
  for_each_traced(call.arguments(), [&](const at::Tensor& tensor) {
    // Functionalisation makes a tensor anew that was written to through another one.
    if (!functional_wrapper(tensor).is_up_to_date()) hold_replaced(tensor);
    // Some were made by no operator: torch::zeros() and its like return a copy of one.
    if (is_watching_) watch(tensor);
  });
}

void LiveTensors::after(const TracedCall& call) {
  if (!is_watching_) return;
  for_each_traced(call.results(), [&](const at::Tensor& tensor) { watch(tensor); });
}

void LiveTensors::hold_replaced(const at::Tensor& traced) {
  replaced_.push_back(functional_wrapper(traced).value());
}

void LiveTensors::watch(const at::Tensor& traced) {
  // A weak pointer keeps the memory of a tensor that is gone.
  if (watched_.size() >= next_sweep_) {
    std::erase_if(watched_, [](const auto& tensor) { return tensor.use_count() == 0; });
    next_sweep_ = 2 * watched_.size() + kFirstSweep;
  }
  watched_.emplace_back(traced.getIntrusivePtr());
}

std::vector<at::Tensor> LiveTensors::watched() const {
  std::vector<at::Tensor> tensors;
  std::unordered_set<const c10::TensorImpl*> seen;
  for (const auto& tensor : watched_) {
    auto alive = tensor.lock();
    if (alive && seen.insert(alive.get()).second) tensors.emplace_back(std::move(alive));
  }
  return tensors;
}

}  // namespace ahead::tracing
