#include "observe/recorder/fallback.h"

#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include <mutex>

#include "ahead/errors.h"
#include "observe/recorder/effect_replay.h"
#include "observe/recorder/recorder.h"
#include "observe/recorder/variable_hooks.h"

namespace ahead::observe {
namespace {

void handle_recorded(const c10::OperatorHandle& handle, c10::DispatchKeySet keys,
                     torch::jit::Stack* stack) {
  if (EffectReplay::take(handle, *stack)) return;
  if (Recorder* recorder = Recorder::current()) return recorder->call(handle, keys, *stack);
  c10::impl::ExcludeDispatchKeyGuard unseen(recording_key);
  handle.redispatchBoxed(keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, recording_key),
                         stack);
}

}  // namespace

void ensure_recording() {
  static std::once_flag once;
  std::call_once(once, [] {
    if (c10::Dispatcher::singleton().hasBackendFallbackForDispatchKey(recording_key)) {
      throw UserError("compile",
                      "dispatch key TESTING_ONLY_GenericMode: another library has registered a "
                      "fallback for it, which Ahead needs to observe functions. Unload that "
                      "library.");
    }
    static auto* library =
        new torch::Library(torch::Library::IMPL, "_", recording_key, __FILE__, __LINE__);
    library->fallback(torch::CppFunction::makeFromBoxedFunction<&handle_recorded>());
    install_variable_hooks();
  });
}

}  // namespace ahead::observe
