#pragma once

#include <c10/core/DispatchKey.h>

namespace ahead::observe {

/// The dispatch key above all others through which operators pass while user code is observed.
constexpr auto recording_key = c10::DispatchKey::TESTING_ONLY_GenericMode;

/// Registers the handler at that key, and the one for what LibTorch does without operators
/// (variable_hooks.h). Code that is not observed passes both undisturbed.
void ensure_recording();

}  // namespace ahead::observe
