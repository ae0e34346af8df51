#pragma once

namespace ahead::memory {

/// Gives freed memory back to the system, if the process has grown a good deal since it did so
/// last. To be called where something small that stays was made between large things that go: the
/// allocator cannot use the holes between small things for what is larger each time.
void trim_if_grown();

}  // namespace ahead::memory
