#include "ahead/version.h"

#define AHEAD_TEXT_OF(x) #x
#define AHEAD_VERSION_TEXT(major, minor, patch) \
  AHEAD_TEXT_OF(major) "." AHEAD_TEXT_OF(minor) "." AHEAD_TEXT_OF(patch)

namespace ahead {

const char* version() noexcept {
  return AHEAD_VERSION_TEXT(AHEAD_VERSION_MAJOR, AHEAD_VERSION_MINOR, AHEAD_VERSION_PATCH);
}

}  // namespace ahead
