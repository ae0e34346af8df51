#pragma once

#include <string>

namespace ahead {

/// Tells the user something once per process and text, on LibTorch's warning channel.
void warn_once(const std::string& message);
/// The same once per process and key, for texts that name what is different each time.
void warn_once(const std::string& key, const std::string& message);

}  // namespace ahead
