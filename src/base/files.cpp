#include "base/files.h"

#include <sys/stat.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <sstream>
#include <vector>

#include "ahead/errors.h"
#include "base/hash.h"

namespace ahead {

void make_folders(const std::string& folder, const char* stage, const std::string& advice) {
  for (size_t end = folder.find('/', 1);; end = folder.find('/', end + 1)) {
    const std::string part = folder.substr(0, end);
    if (::mkdir(part.c_str(), 0777) != 0 && errno != EEXIST)
      throw UserError(stage, part + ": " + std::strerror(errno) + ". " + advice);
    if (end == std::string::npos) return;
  }
}

bool read_file(const std::string& path, std::string& contents) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream all;
  all << file.rdbuf();
  contents = all.str();
  return file.good();
}

bool write_file(const std::string& path, const std::string& contents) {
  const std::string unfinished = path + ".unfinished";
  std::ofstream file(unfinished, std::ios::binary);
  file << contents;
  file.close();
  return file.good() && std::rename(unfinished.c_str(), path.c_str()) == 0;
}

uint64_t hash_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return 0;
  std::vector<char> part(size_t{1} << 20);
  uint64_t hash = 1;
  while (file) {
    file.read(part.data(), static_cast<std::streamsize>(part.size()));
    hash = hash_bytes({part.data(), static_cast<size_t>(file.gcount())}, hash);
  }
  return hash;
}

}  // namespace ahead
