#include "base/compiler_interface.h"

namespace ahead {

std::mutex& compiler_interface_mutex() {
  static auto* mutex = new std::mutex;
  return *mutex;
}

}  // namespace ahead
