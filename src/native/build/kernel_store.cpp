#include "native/build/kernel_store.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <ctime>
#include <map>
#include <memory>
#include <sstream>
#include <utility>

#include "base/files.h"
#include "native/build/digest.h"

namespace ahead::native {
namespace {

constexpr int64_t one_second = 1'000'000'000;
constexpr int64_t abandoned_after = 3600 * one_second;

struct FileFacts {
  std::string name;
  uint64_t bytes = 0;
  /// In nanoseconds since the beginning of 1970.
  int64_t used = 0;
};

std::vector<FileFacts> files_of(const std::string& folder) {
  std::vector<FileFacts> files;
  const std::unique_ptr<DIR, int (*)(DIR*)> stream(::opendir(folder.c_str()), &::closedir);
  if (!stream) return files;
  while (const dirent* entry = ::readdir(stream.get())) {
    struct stat facts {};
    if (::fstatat(::dirfd(stream.get()), entry->d_name, &facts, 0) == 0 && S_ISREG(facts.st_mode))
      files.push_back({entry->d_name, static_cast<uint64_t>(facts.st_size),
                       facts.st_mtim.tv_sec * one_second + facts.st_mtim.tv_nsec});
  }
  return files;
}

/// Writes a file elsewhere first, under a name that no other thread or process uses.
bool write_whole(const std::string& path, const std::string& contents, const std::string& work) {
  static std::atomic<uint64_t> count{0};
  const std::string unfinished = work + "/" + std::to_string(::getpid()) + "." +
                                 std::to_string(count.fetch_add(1)) + ".unfinished";
  return write_file(unfinished, contents) && std::rename(unfinished.c_str(), path.c_str()) == 0;
}

constexpr const char* kernel_line = "// kernel ";

}  // namespace

KernelStore::KernelStore(std::string folder, uint64_t byte_limit)
    : kernels_(folder + "/kernels"),
      libraries_(folder + "/libraries"),
      compilers_(folder + "/compilers"),
      failed_(folder + "/failed"),
      work_(folder + "/work"),
      byte_limit_(byte_limit) {
  for (const std::string& part : {kernels_, libraries_, compilers_, failed_, work_})
    ::mkdir(part.c_str(), 0700);
}

std::string KernelStore::library_of(const std::string& key) const {
  std::string library;
  constexpr size_t digits = 32;
  if (!read_file(kernels_ + "/" + key, library) || library.size() != digits ||
      library.find_first_not_of("0123456789abcdef") != std::string::npos)
    return "";
  return library;
}

std::string KernelStore::path_of_library(const std::string& library) const {
  return libraries_ + "/" + library + ".so";
}

std::string KernelStore::read_library(const std::string& library) const {
  std::string bytes;
  const std::string path = path_of_library(library);
  if (!read_file(path, bytes) || digest(bytes) != library) return "";
  ::utimensat(AT_FDCWD, path.c_str(), nullptr, 0);
  return bytes;
}

std::string KernelStore::add(const std::string& binary, const std::string& source,
                             const std::vector<StoredKernel>& kernels) {
  std::string library = digest(binary);
  std::string text;
  for (const StoredKernel& kernel : kernels)
    text += kernel_line + kernel.key + " " + kernel.name + "\n";
  if (!write_whole(libraries_ + "/" + library + ".cpp", text + source, work_) ||
      !write_whole(path_of_library(library), binary, work_))
    return "";
  for (const StoredKernel& kernel : kernels)
    if (!write_whole(kernels_ + "/" + kernel.key, library, work_)) return "";
  remove_oldest();
  return library;
}

void KernelStore::add_compiler(const std::string& compiler) const {
  write_whole(compilers_ + "/" + digest(compiler), compiler, work_);
}

std::vector<std::string> KernelStore::compilers() const {
  std::vector<FileFacts> files = files_of(compilers_);
  std::sort(files.begin(), files.end(),
            [](const FileFacts& one, const FileFacts& other) { return one.used > other.used; });
  std::vector<std::string> compilers;
  for (const FileFacts& file : files) {
    std::string compiler;
    if (read_file(compilers_ + "/" + file.name, compiler) && digest(compiler) == file.name)
      compilers.push_back(std::move(compiler));
  }
  return compilers;
}

std::string KernelStore::add_failed(const std::string& name, const std::string& source) const {
  const std::string path = failed_ + "/" + name + ".cpp";
  return write_whole(path, source, work_) ? path : "";
}

void KernelStore::remove_oldest() {
  const int64_t now = std::time(nullptr) * one_second;
  for (const std::string& folder : {work_, failed_})
    for (const FileFacts& file : files_of(folder))
      if (file.used + abandoned_after < now) ::unlink((folder + "/" + file.name).c_str());

  // A library and its source are one; both bear the name of the library.
  std::map<std::string, FileFacts> libraries;
  uint64_t bytes = 0;
  for (const FileFacts& file : files_of(libraries_)) {
    FileFacts& library = libraries[file.name.substr(0, file.name.find('.'))];
    library.bytes += file.bytes;
    library.used = std::max(library.used, file.used);
    bytes += file.bytes;
  }
  std::vector<std::pair<int64_t, std::string>> oldest_first;
  for (const auto& [name, library] : libraries) oldest_first.emplace_back(library.used, name);
  std::sort(oldest_first.begin(), oldest_first.end());
  for (const auto& [used, name] : oldest_first) {
    if (bytes <= byte_limit_) return;
    remove_library(name);
    bytes -= libraries[name].bytes;
  }
}

void KernelStore::remove_library(const std::string& library) {
  const std::string source_path = libraries_ + "/" + library + ".cpp";
  std::string source;
  if (read_file(source_path, source)) {
    std::istringstream lines(source);
    const size_t start = std::string(kernel_line).size();
    for (std::string line; std::getline(lines, line) && line.rfind(kernel_line, 0) == 0;) {
      const std::string key = line.substr(start, line.find(' ', start) - start);
      if (library_of(key) == library) ::unlink((kernels_ + "/" + key).c_str());
    }
  }
  ::unlink(source_path.c_str());
  ::unlink(path_of_library(library).c_str());
}

}  // namespace ahead::native
