#pragma once

#include <string>

namespace ahead::native {

/// Loads a shared library from its file, or, where that cannot be had (a folder whose files must
/// not be executed, a file that has just gone), from its bytes. Null with a reason if neither
/// works. A library is never unloaded.
void* load_library(const std::string& path, const std::string& bytes, std::string& reason);

/// Loads a shared library from its bytes, without a file.
void* load_library_from_memory(const std::string& bytes, std::string& reason);

}  // namespace ahead::native
