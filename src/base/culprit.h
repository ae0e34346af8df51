#pragma once

#include <string>

namespace ahead {

/// The operator or autograd node that is the reason for something, by the name that messages give
/// it. Where there may be none, an optional one.
struct Culprit {
  std::string name;
};

}  // namespace ahead
