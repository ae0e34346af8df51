#include "memory/trim.h"

#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <mutex>

#ifdef __GLIBC__
#include <malloc.h>
#endif

namespace ahead::memory {
namespace {

/// The memory of this process that is resident, in bytes; 0: that is not known.
int64_t resident_bytes() {
  int64_t total = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> total >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

/// By a quarter, so that a process which grows for other reasons is trimmed rarely; and by enough
/// to be worth the time that the pages take which are asked for again.
int64_t next_limit(int64_t resident) {
  constexpr int64_t least_growth = int64_t{64} << 20;
  return resident + resident / 4 + least_growth;
}

}  // namespace

void trim_if_grown() {
#ifdef __GLIBC__
  static std::mutex mutex;
  static int64_t limit = next_limit(0);
  const std::unique_lock<std::mutex> lock(mutex, std::try_to_lock);
  if (!lock.owns_lock() || resident_bytes() < limit) return;
  malloc_trim(0);
  limit = next_limit(resident_bytes());
#endif
}

}  // namespace ahead::memory
