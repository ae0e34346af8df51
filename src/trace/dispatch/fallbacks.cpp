#include "trace/dispatch/fallbacks.h"

#include <c10/util/Exception.h>
#include <torch/library.h>

#include <mutex>

#include "ahead/errors.h"
#include "trace/dispatch/handlers.h"
#include "trace/eager/expand.h"
#include "trace/eager/hidden_mutations.h"
#include "trace/eager/list_mutations.h"

namespace ahead::tracing {
namespace {

void require_free(c10::DispatchKey key) {
  if (!c10::Dispatcher::singleton().hasBackendFallbackForDispatchKey(key)) return;
  throw UserError("trace", std::string("dispatch key ") + c10::toString(key) +
                               ": another library (torchdistx, for example) has registered a "
                               "fallback for it, which Ahead "
                               "needs for tracing. Unload that library.");
}

/// The dispatcher warns of every kernel that is registered in front of another.
class Silent : public c10::WarningHandler {
  void process(const c10::Warning&) override {}
};

template <auto Handler>
torch::CppFunction boxed() {
  return torch::CppFunction::makeFromBoxedFunction<Handler>();
}

}  // namespace

void ensure_fallbacks_registered() {
  static std::mutex mutex;
  static torch::Library* lift = nullptr;
  static torch::Library* fake = nullptr;
  static torch::Library* functionalize = nullptr;
  std::lock_guard<std::mutex> lock(mutex);
  if (functionalize != nullptr) return;
  require_free(c10::DispatchKey::DeferredInit);
  require_free(c10::DispatchKey::Fake);
  // Never unregistered: traced tensors may outlive every trace.
  lift = new torch::Library(torch::Library::IMPL, "_", c10::DispatchKey::DeferredInit, __FILE__,
                            __LINE__);
  lift->fallback(boxed<&handle_lift>());
  fake = new torch::Library(torch::Library::IMPL, "_", c10::DispatchKey::Fake, __FILE__, __LINE__);
  fake->fallback(boxed<&handle_fake>());
  functionalize = new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::Functionalize,
                                     __FILE__, __LINE__);
  Silent silent;
  c10::WarningUtils::WarningHandlerGuard guard(&silent);
  register_hidden_mutations(*functionalize);
  register_expand(*functionalize);
  register_list_mutations(*functionalize);
}

}  // namespace ahead::tracing
