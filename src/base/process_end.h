#pragma once

namespace ahead {

/// Whether LibTorch's static objects, such as those that know of GPUs, may be gone: static
/// destructors of the program may come after theirs. Known if watch_process_end() was called
/// before.
bool is_process_ending();
/// To be called before something is traced or observed.
void watch_process_end();

}  // namespace ahead
