#include "trace/tracer.h"

#include <ATen/FunctionalTensorWrapper.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <thread>

#include "ahead/checkpoint.h"
#include "ahead/errors.h"
#include "trace/dispatch/fallbacks.h"
#include "trace/tensor/functional.h"

namespace ahead::tracing {
namespace {

thread_local Tracer* current_tracer = nullptr;

/// Carries the tracer to the autograd engine's device threads, together with LibTorch's own state.
struct TracerInfo : c10::DebugInfoBase {
  explicit TracerInfo(Tracer* t) : tracer(t) {}
  Tracer* tracer;
};

/// Leaves inference mode for a scope, but not what it implies: that there are no gradients.
struct OutsideInferenceMode {
  explicit OutsideInferenceMode(bool in_inference_mode) {
    if (!in_inference_mode) return;
    normal.emplace(false);
    no_grad.emplace();
  }
  std::optional<c10::InferenceMode> normal;
  std::optional<at::NoGradGuard> no_grad;
};

}  // namespace

Tracer::Tracer(TraceOptions options)
    : options_(options), in_inference_mode_(c10::InferenceMode::is_enabled()) {}

Tracer* Tracer::current() {
  if (current_tracer != nullptr) return current_tracer;
  auto* info = c10::ThreadLocalDebugInfo::get(c10::DebugInfoKind::PRODUCER_INFO);
  auto* carried = dynamic_cast<TracerInfo*>(info);
  return carried == nullptr ? nullptr : carried->tracer;
}

void Tracer::note_node(Node& node) {
  if (node.phase != Phase::Forward) return;
  // An operator that switches grad mode off inside may do so to write to a differentiable tensor.
  const bool is_inside = node.has(Tag::NoGrad) && grad_mode_;
  if (is_inside && torch::autograd::get_current_node() == nullptr) hidden_write_ = &node.op();
  if (!checkpoints_.empty()) tag_for_checkpoint(node);
}

void Tracer::tag_for_checkpoint(Node& node) const {
  constexpr Tag tags[] = {Tag::MustSave, Tag::PreferSave, Tag::PreferRecompute, Tag::MustRecompute};
  const Saving saving = checkpoints_.empty() ? Saving::MustSave : (*checkpoints_.back())(node.op());
  uint16_t others = node.tags();
  for (Tag tag : tags) others &= static_cast<uint16_t>(~static_cast<uint16_t>(tag));
  node.set_tags(others);
  node.set(tags[static_cast<size_t>(saving)]);
}

/// The engine's threads, one for each device but the CPU, let go of what they ran a little after
/// they have said that they are done.
std::vector<const Value*> Tracer::escaped() const {
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

void Tracer::keep_replaced(const at::Tensor& traced) {
  replaced_.push_back(functional_wrapper(traced).value());
}

void Tracer::add_watched(const at::Tensor& tensor) {
  // A weak pointer keeps the memory of a tensor that is gone.
  if (watched_.size() >= next_sweep_) {
    std::erase_if(watched_, [](const auto& tensor) { return tensor.use_count() == 0; });
    next_sweep_ = 2 * watched_.size() + kFirstSweep;
  }
  watched_.emplace_back(tensor.getIntrusivePtr());
}

std::vector<at::Tensor> Tracer::watched() const {
  std::vector<at::Tensor> tensors;
  std::unordered_set<const c10::TensorImpl*> seen;
  for (const auto& tensor : watched_) {
    auto alive = tensor.lock();
    if (alive && seen.insert(alive.get()).second) tensors.emplace_back(std::move(alive));
  }
  return tensors;
}

Tracer::WriteCounts Tracer::count_writes() const {
  WriteCounts counts;
  const auto add = [&](const c10::intrusive_ptr<c10::TensorImpl>& tensor) {
    counts.emplace_back(tensor, functional_wrapper(at::Tensor(tensor)).mutation_counter());
  };
  for (const at::Tensor& tensor : watched()) add(tensor.getIntrusivePtr());
  for (const Lifted& lifted : outside_.lifted()) add(lifted.wrapper.getIntrusivePtr());
  return counts;
}

bool Tracer::has_written_since(const WriteCounts& before) {
  return std::any_of(before.begin(), before.end(), [](const auto& entry) {
    auto alive = entry.first.lock();
    return alive && functional_wrapper(at::Tensor(alive)).mutation_counter() != entry.second;
  });
}

void Tracer::note_detached(const at::Tensor& traced) {
  detached_storages_.insert(functional_memory(traced));
}

void Tracer::note_fragile_view(const at::Tensor& traced, const Operator& op) {
  fragile_storages_.emplace(functional_memory(traced), &op);
}

const Operator* Tracer::fragile_view(const at::Tensor& traced) const {
  const auto found = fragile_storages_.find(functional_memory(traced));
  return found == fragile_storages_.end() ? nullptr : found->second;
}

void Tracer::note_write(const at::Tensor& written, bool has_same_history, const Operator& op) {
  const bool is_detached = detached_storages_.count(functional_memory(written)) != 0;
  if (is_detached || (has_same_history && written.requires_grad())) hidden_write_ = &op;
}

Graph Tracer::close() {
  closed_ = true;
  outside_.clear();
  return writer_.take();
}

struct TraceScope::State {
  explicit State(Tracer& tracer)
      : outside(tracer.in_inference_mode()),
        info(c10::DebugInfoKind::PRODUCER_INFO, std::make_shared<TracerInfo>(&tracer)),
        clear_autocast_cache(at::autocast::is_autocast_cache_enabled()) {}

  OutsideInferenceMode outside;  // first, since it restores the keys as it found them
  c10::DebugInfoGuard info;
  bool clear_autocast_cache;
  c10::impl::IncludeDispatchKeyGuard keys{c10::DispatchKeySet{
      c10::DispatchKey::DeferredInit, c10::DispatchKey::Functionalize, c10::DispatchKey::Fake}};
  at::functionalization::impl::FunctionalizationReapplyViewsGuard reapply_views{true};
};

TraceScope::TraceScope(Tracer& tracer) {
  if (current_tracer != nullptr) {
    throw UserError("trace",
                    "a trace was started inside a traced function. Call the inner function itself; "
                    "it is traced along.");
  }
  ensure_fallbacks_registered();
  state_ = std::make_unique<State>(tracer);
  current_tracer = &tracer;
}

TraceScope::~TraceScope() {
  current_tracer->forget_replaced();
  current_tracer = nullptr;
  // Casts of traced weights must not outlive the trace in autocast's cache.
  if (state_->clear_autocast_cache) at::autocast::clear_cache();
}

}  // namespace ahead::tracing
