#pragma once

#include <string>

namespace ahead::native {

/// A function of generated code: the name of its symbol, which says what it does and ends with a
/// hash of the text, and a text that defines it. The text is put into a namespace, so other texts
/// may define the same helpers.
struct KernelSource {
  std::string name;
  std::string text;
  /// The text needs the words of with_prelude for so many lanes before it; 0: it needs nothing.
  int lanes = 0;
};

}  // namespace ahead::native
