#include "base/environment.h"

#include <cstdlib>

namespace ahead {

std::string environment(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace ahead
