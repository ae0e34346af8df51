#include "observe/tape/ambient.h"

#include <ATen/core/grad_mode.h>
#include <c10/core/DefaultDtype.h>

namespace ahead::observe {

AmbientReplay::~AmbientReplay() {
  const bool grad_mode = at::GradMode::is_enabled();
  leave_keys();
  autocast_before_.apply();
  c10::set_default_dtype(c10::scalarTypeToTypeMeta(dtype_before_));
  at::GradMode::set_enabled(grad_mode);
}

void AmbientReplay::leave_keys() {
  excluded_.reset();
  inference_.reset();
}

void AmbientReplay::apply(const Ambient& ambient) {
  if (now_ == &ambient) return;
  now_ = &ambient;
  const runtime::AmbientState &first = first_.state, &state = ambient.state;
  leave_keys();
  // The caller has put the inference mode into effect in which the function was called.
  const bool switches_inference = state.inference_mode != first.inference_mode;
  if (switches_inference) inference_.emplace(state.inference_mode);
  if (!(ambient.autocast == AutocastState::current())) ambient.autocast.apply();
  c10::set_default_dtype(c10::scalarTypeToTypeMeta(state.default_dtype));
  const uint64_t more = switches_inference ? 0 : state.excluded_keys & ~first.excluded_keys;
  if (more != 0) excluded_.emplace(c10::DispatchKeySet(c10::DispatchKeySet::RAW, more));
  at::GradMode::set_enabled(state.grad_mode);
}

}  // namespace ahead::observe
