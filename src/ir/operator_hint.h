#pragma once

#include <string>
#include <string_view>

namespace ahead {

/// A sentence that helps whoever wrote an operator name that does not exist: the overloads there
/// are, a name that looks alike, or where operators come from. Slow; for error messages.
std::string operator_hint(std::string_view unknown);

}  // namespace ahead
