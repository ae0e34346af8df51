#pragma once

#include <malloc.h>
#include <unistd.h>

#include <cstdint>
#include <fstream>

namespace ahead::test {

/// The memory of this process that is in use, in bytes, whether or not it was freed since.
inline int64_t resident_memory_as_it_is() {
#ifdef __SANITIZE_ADDRESS__
  return 0;  // AddressSanitizer holds on to memory that was freed
#endif
  int64_t total = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> total >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

/// The same once what was freed has been given back.
inline int64_t resident_memory() {
  malloc_trim(0);
  return resident_memory_as_it_is();
}

}  // namespace ahead::test
