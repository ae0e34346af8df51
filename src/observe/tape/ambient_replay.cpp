#include "observe/tape/ambient_replay.h"

#include <ATen/core/grad_mode.h>
#include <c10/core/DefaultDtype.h>
#include <c10/core/ScalarTypeToTypeMeta.h>

namespace ahead::observe {

AmbientReplay::~AmbientReplay() {
  const bool grad_mode = at::GradMode::is_enabled();
  leave_keys();
  before_.apply_dtypes();
  at::GradMode::set_enabled(grad_mode);
}

void AmbientReplay::leave_keys() {
  excluded_.reset();
  inference_.reset();
}

void AmbientReplay::apply(const Ambient& ambient) {
  if (now_ == &ambient) return;
  now_ = &ambient;
  leave_keys();
  // The caller has put the inference mode into effect in which the function was called.
  const bool switches_inference = ambient.inference_mode != first_.inference_mode;
  if (switches_inference) inference_.emplace(ambient.inference_mode);
  if (!(ambient.autocast == AutocastState::current())) ambient.autocast.apply();
  c10::set_default_dtype(c10::scalarTypeToTypeMeta(ambient.default_dtype));
  const uint64_t more = switches_inference ? 0 : ambient.excluded_keys & ~first_.excluded_keys;
  if (more != 0) excluded_.emplace(c10::DispatchKeySet(c10::DispatchKeySet::RAW, more));
  at::GradMode::set_enabled(ambient.grad_mode);
}

}  // namespace ahead::observe
