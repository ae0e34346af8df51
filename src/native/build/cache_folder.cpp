#include "native/build/cache_folder.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <vector>

#include "base/environment.h"
#include "base/log.h"

namespace ahead::native {
namespace {

std::string temporary_folder() {
  const std::string folder = environment("TMPDIR");
  return folder.empty() ? "/tmp" : folder;
}

/// Makes a folder and those around it, for this user alone.
bool make_private_folders(const std::string& folder) {
  for (size_t end = folder.find('/', 1);; end = folder.find('/', end + 1)) {
    if (::mkdir(folder.substr(0, end).c_str(), 0700) != 0 && errno != EEXIST) return false;
    if (end == std::string::npos) return true;
  }
}

}  // namespace

bool is_private_folder(const std::string& folder) {
  struct stat facts {};
  if (!make_private_folders(folder) || ::stat(folder.c_str(), &facts) != 0) return false;
  const bool is_writable_for_others = (facts.st_mode & (S_IWGRP | S_IWOTH)) != 0;
  if (facts.st_uid == ::geteuid() && S_ISDIR(facts.st_mode) && !is_writable_for_others)
    return ::access(folder.c_str(), R_OK | W_OK | X_OK) == 0;
  warn_once(
      "ahead: the folder " + folder + " is not used for compiled kernels, since others " +
      "can write to it. Make it yours alone (chmod 700), or name another in AHEAD_CACHE_DIR.");
  return false;
}

std::string find_cache_folder() {
  const std::string wanted = environment("AHEAD_CACHE_DIR");
  if (!wanted.empty()) return is_private_folder(wanted) ? wanted : "";
  const std::string caches = environment("XDG_CACHE_HOME");
  const std::string home = environment("HOME");
  std::vector<std::string> folders;
  if (!caches.empty()) folders.push_back(caches + "/ahead");
  if (!home.empty()) folders.push_back(home + "/.cache/ahead");
  folders.push_back(temporary_folder() + "/ahead-" + std::to_string(::geteuid()));
  for (const std::string& folder : folders)
    if (is_private_folder(folder)) return folder;
  return "";
}

std::string make_temporary_folder() {
  std::string folder = temporary_folder() + "/ahead-XXXXXX";
  return ::mkdtemp(folder.data()) == nullptr ? "" : folder;
}

}  // namespace ahead::native
