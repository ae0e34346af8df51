#pragma once

#include <malloc.h>
#include <unistd.h>

#include <cstdint>
#include <fstream>

namespace ahead::test {

/// The memory of this process that is in use, in bytes, once what was freed has been given back.
inline int64_t resident_memory() {
#ifdef __SANITIZE_ADDRESS__
  return 0;  // AddressSanitizer holds on to memory that was freed
#endif
  malloc_trim(0);
  int64_t total = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> total >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

}  // namespace ahead::test
