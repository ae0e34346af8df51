#pragma once

#include <string>

namespace ahead {

/// Tells the user something once per process and text, on LibTorch's warning channel.
void warn_once(const std::string& message);

}  // namespace ahead
