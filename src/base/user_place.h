#pragma once

#include <cstdint>
#include <string>
#include <thread>

namespace ahead {

/// How deep in the stack of which thread a function stands.
struct StackMark {
  std::thread::id thread;
  uintptr_t address = 0;

  /// That of the function which called into Ahead's library.
  static StackMark of_caller();
};

/// The places in the user's code that led here, innermost first: the file, line and function of
/// each frame that is neither LibTorch's nor of another library below it, up to where Ahead called
/// it, or up to the function at the mark, which is named if none is before it. Frames without debug
/// information are known by library and offset. Null if there are none. Interned.
const std::string* user_place(const StackMark& end = {});

}  // namespace ahead
