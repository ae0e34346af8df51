#pragma once

#include <string>

namespace ahead::native {

/// Whether a folder is there, or can be made, and belongs to this user alone, who could otherwise
/// be made to run the code of others. If it belongs to others a warning says so, once.
bool is_private_folder(const std::string& folder);

/// The folder where kernels are kept from one process to the next: AHEAD_CACHE_DIR, or else the
/// first that can be used of $XDG_CACHE_HOME/ahead, ~/.cache/ahead and one in the folder for
/// temporary files. Empty if there is none.
std::string find_cache_folder();

/// A new folder for temporary files of this process; empty if none can be made.
std::string make_temporary_folder();

}  // namespace ahead::native
