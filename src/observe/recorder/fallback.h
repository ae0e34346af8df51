#pragma once

#include <c10/core/DispatchKey.h>

namespace ahead::observe {

/// The dispatch key above all others through which operators pass while user code is observed.
constexpr auto recording_key = c10::DispatchKey::TESTING_ONLY_GenericMode;

/// Registers what stands at that key, and in front of what LibTorch does without operators. Once it
/// has been called, code that is not observed goes by undisturbed.
void ensure_recording();

}  // namespace ahead::observe
