#include "native/build/loader.h"

#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace ahead::native {
namespace {

void* open_library(const std::string& path, std::string& reason) {
  void* const handle = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) reason = ::dlerror();
  return handle;
}

bool write_all(int file, const std::string& bytes) {
  for (size_t done = 0; done < bytes.size();) {
    const ssize_t count = ::write(file, bytes.data() + done, bytes.size() - done);
    if (count > 0) done += static_cast<size_t>(count);
    if (count < 0 && errno != EINTR) return false;
  }
  return true;
}

}  // namespace

void* load_library_from_memory(const std::string& bytes, std::string& reason) {
  const int file = ::memfd_create("ahead-kernels", MFD_CLOEXEC);
  if (file < 0 || !write_all(file, bytes)) {
    reason = std::string("memory for a library: ") + std::strerror(errno);
    if (file >= 0) ::close(file);
    return nullptr;
  }
  void* const handle = open_library("/proc/self/fd/" + std::to_string(file), reason);
  // A library that is loaded keeps its file open: the loader knows libraries by their names, and
  // would take the next file with this number for it.
  if (handle == nullptr) ::close(file);
  return handle;
}

void* load_library(const std::string& path, const std::string& bytes, std::string& reason) {
  void* const handle = open_library(path, reason);
  if (handle != nullptr) return handle;
  std::string second_reason;
  void* const copy = load_library_from_memory(bytes, second_reason);
  if (copy == nullptr) reason += "; " + second_reason;
  return copy;
}

}  // namespace ahead::native
