#include "trace/tracer.h"

#include <ATen/FunctionalTensorWrapper.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <optional>

#include "ahead/errors.h"
#include "trace/dispatch/fallbacks.h"

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

Graph Tracer::close() {
  closed_ = true;
  size_reads_.close();
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
  current_tracer->live_tensors().forget_replaced();
  current_tracer = nullptr;
  // Casts of traced weights must not outlive the trace in autocast's cache.
  if (state_->clear_autocast_cache) at::autocast::clear_cache();
}

}  // namespace ahead::tracing
