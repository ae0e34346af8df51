#include "base/ambient.h"

#include <ATen/Context.h>
#include <c10/core/AutogradState.h>
#include <c10/core/DefaultDtype.h>
#include <c10/core/ScalarTypeToTypeMeta.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace ahead {

Ambient Ambient::current() {
  const c10::impl::LocalDispatchKeySet keys = c10::impl::tls_local_dispatch_key_set();
  const c10::AutogradState& autograd = c10::AutogradState::get_tls_state();
  const at::Context& context = at::globalContext();
  return {.included_keys = keys.included_.raw_repr(),
          .excluded_keys = keys.excluded_.raw_repr(),
          .grad_mode = autograd.get_grad_mode(),
          .inference_mode = autograd.get_inference_mode(),
          .default_dtype = c10::get_default_dtype_as_scalartype(),
          .autocast = AutocastState::current(),
          .deterministic = context.deterministicAlgorithms(),
          .deterministic_warn_only = context.deterministicAlgorithmsWarnOnly()};
}

std::array<uint64_t, 3> Ambient::words() const {
  uint64_t rest = static_cast<uint8_t>(default_dtype);
  // For which devices autocast is on shows in the keys.
  for (const AutocastState::Device& device : autocast.devices)
    rest = rest << 8 | static_cast<uint8_t>(device.dtype);
  for (bool flag :
       {grad_mode, inference_mode, autocast.cache, deterministic, deterministic_warn_only}) {
    rest = rest << 1 | static_cast<uint64_t>(flag);
  }
  return {included_keys, excluded_keys, rest};
}

std::string Ambient::difference(const Ambient& now) const {
  if (grad_mode != now.grad_mode) return now.grad_mode ? "grad mode is on" : "grad mode is off";
  if (inference_mode != now.inference_mode)
    return now.inference_mode ? "inference mode is on" : "inference mode is off";
  if (default_dtype != now.default_dtype)
    return std::string("the default dtype is ") + c10::toString(now.default_dtype);
  if (deterministic != now.deterministic ||
      deterministic_warn_only != now.deterministic_warn_only) {
    return "deterministic algorithms were switched on or off";
  }
  return *this == now ? "" : "autocast or another dispatcher mode is different";
}

void Ambient::apply_dtypes() const {
  autocast.apply();
  c10::set_default_dtype(c10::scalarTypeToTypeMeta(default_dtype));
}

}  // namespace ahead
