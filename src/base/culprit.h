#pragma once

#include <string>

namespace ahead {

/// The operator or autograd node because of which something is refused, by the name that messages
/// give it. Where none may be to blame, an optional Culprit is used.
struct Culprit {
  std::string name;
};

}  // namespace ahead
