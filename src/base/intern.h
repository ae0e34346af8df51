#pragma once

#include <string>
#include <string_view>

namespace ahead {

/// The one address at which this process keeps this text. Thread-safe; never freed.
const std::string* intern(std::string_view text);

}  // namespace ahead
