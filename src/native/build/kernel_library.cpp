#include "native/build/kernel_library.h"

#include <c10/util/ScopeExit.h>
#include <dlfcn.h>
#include <unistd.h>

#include <chrono>
#include <utility>

#include "base/log.h"
#include "native/build/cache_folder.h"
#include "native/build/digest.h"
#include "native/build/loader.h"
#include "native/build/process.h"
#include "native/print/prelude.h"

namespace ahead::native {
namespace {

/// A folder for temporary files for as long as this lives, where there is no cache to use.
class TemporaryFolder {
 public:
  TemporaryFolder() : path_(make_temporary_folder()) {}
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() { ::rmdir(path_.c_str()); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

/// What code a compiler is to make.
std::string describe_code(const Target& target) {
  std::string text = target.capability;
  for (const std::string& flag : target.flags) text += '\n' + flag;
  return text;
}

/// All that a kernel depends on beside its text.
std::string describe_compiler(const Target& target) {
  return target.compiler + '\n' + target.version + '\n' + describe_code(target);
}

std::string key_of(const KernelSource& source, const std::string& compiler) {
  const std::string words =
      source.lanes == 0 ? "" : std::to_string(source.lanes) + ' ' + std::to_string(hash_of_words());
  return digest(source.name + '\0' + source.text + '\0' + words + '\0' + compiler);
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

KernelLibrary::KernelLibrary(BuildSettings settings) : settings_(std::move(settings)) {
  if (!settings_.cache_folder.empty())
    store_ = std::make_unique<KernelStore>(settings_.cache_folder, settings_.cache_byte_limit);
  compilers_ = {describe_compiler(settings_.target)};
  if (store_ == nullptr || !settings_.target.compiler.empty()) return;
  const std::string same_code = '\n' + describe_code(settings_.target);
  for (std::string& compiler : store_->compilers())
    if (compiler.ends_with(same_code)) compilers_.push_back(std::move(compiler));
}

std::vector<KernelAddress> KernelLibrary::build(const std::vector<KernelSource>& sources,
                                                std::vector<KernelOrigin>* origins) {
  const auto start = std::chrono::steady_clock::now();
  const int64_t process = ::getpid();
  std::vector<std::string> keys;
  for (const KernelSource& source : sources) keys.push_back(key_of(source, compilers_.front()));

  std::vector<Wanted> wanted;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    for (size_t i = 0; i < sources.size(); ++i) {
      if (kernels_.count(keys[i]) != 0) continue;
      int64_t& builder = builders_[keys[i]];
      if (std::exchange(builder, process) != process) wanted.push_back({keys[i], sources[i]});
    }
  }
  {
    // Also when something throws: others may wait for these.
    const auto publishing = c10::make_scope_exit([&] { publish(wanted); });
    load_from_cache(wanted);
    compile(wanted);
  }

  std::unique_lock<std::mutex> lock(mutex_);
  std::vector<KernelAddress> addresses;
  for (const std::string& key : keys) {
    built_.wait(lock, [&] { return kernels_.count(key) != 0; });
    addresses.push_back(kernels_[key].address);
  }
  if (origins != nullptr) {
    origins->clear();
    for (const std::string& key : keys) {
      Built& kernel = kernels_[key];
      origins->push_back(kernel.origin);
      if (kernel.address != nullptr) kernel.origin = KernelOrigin::Process;
    }
  }
  counters_.seconds += seconds_since(start);
  return addresses;
}

void KernelLibrary::publish(const std::vector<Wanted>& wanted) {
  std::lock_guard<std::mutex> lock(mutex_);
  for (const Wanted& kernel : wanted) {
    kernels_[kernel.key] = {kernel.address, kernel.origin};
    builders_.erase(kernel.key);
    counters_.compiled += kernel.origin == KernelOrigin::Compiler;
    counters_.loaded_from_cache += kernel.origin == KernelOrigin::Cache;
    counters_.failed += kernel.origin == KernelOrigin::Nowhere;
  }
  built_.notify_all();
}

void* KernelLibrary::open(const std::string& library, const std::string& bytes,
                          std::string& reason) {
  void* handle = nullptr;
  if (store_ != nullptr && !settings_.load_from_memory)
    handle = load_library(store_->path_of_library(library), bytes, reason);
  else
    handle = load_library_from_memory(bytes, reason);
  std::lock_guard<std::mutex> lock(mutex_);
  if (handle != nullptr) libraries_.emplace(library, handle);
  return handle;
}

void KernelLibrary::load_from_cache(std::vector<Wanted>& wanted) {
  if (store_ == nullptr) return;
  for (Wanted& kernel : wanted) {
    std::string library;
    for (const std::string& compiler : compilers_) {
      library = store_->library_of(key_of(kernel.source, compiler));
      if (!library.empty()) break;
    }
    if (library.empty()) continue;
    void* handle = nullptr;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      const auto found = libraries_.find(library);
      if (found != libraries_.end()) handle = found->second;
    }
    std::string reason;
    if (handle == nullptr) {
      const std::string bytes = store_->read_library(library);
      if (!bytes.empty()) handle = open(library, bytes, reason);
    }
    if (handle == nullptr) continue;
    kernel.address = ::dlsym(handle, kernel.source.name.c_str());
    if (kernel.address != nullptr) kernel.origin = KernelOrigin::Cache;
  }
}

void KernelLibrary::compile(std::vector<Wanted>& wanted) {
  std::vector<Wanted*> missing;
  std::vector<KernelSource> sources;
  for (Wanted& kernel : wanted) {
    if (kernel.address != nullptr) continue;
    missing.push_back(&kernel);
    sources.push_back(kernel.source);
    if (kernel.source.lanes != 0)
      sources.back().text = with_prelude(kernel.source.text, kernel.source.lanes);
  }
  if (missing.empty()) return;
  if (settings_.target.compiler.empty()) {
    warn_once(
        "ahead: kernels are not compiled, since there is no C++ compiler on this machine, or the "
        "one "
        "that AHEAD_CC names does not work. Install g++ or clang++, or set AHEAD_CC to one.");
    return;
  }
  const TemporaryFolder temporary;
  const std::string& folder = store_ != nullptr ? store_->work_folder() : temporary.path();
  const std::vector<CompiledFile> files = compile_kernels(sources, settings_.target, folder);
  // The program ends: compilers were stopped, and nobody waits for these kernels any more.
  if (are_processes_ended()) return;
  for (const CompiledFile& file : files) load_compiled(file, missing);
  if (store_ != nullptr) store_->add_compiler(compilers_.front());
}

void KernelLibrary::load_compiled(const CompiledFile& file, std::vector<Wanted*>& wanted) {
  std::string reason = file.errors;
  void* handle = nullptr;
  if (!file.binary.empty()) {
    std::vector<StoredKernel> kernels;
    for (const size_t i : file.kernels) kernels.push_back({wanted[i]->key, wanted[i]->source.name});
    const std::string library =
        store_ != nullptr ? store_->add(file.binary, file.source, kernels) : digest(file.binary);
    handle = open(library, file.binary, reason);
  }
  for (const size_t i : file.kernels) {
    Wanted& kernel = *wanted[i];
    if (handle != nullptr) kernel.address = ::dlsym(handle, kernel.source.name.c_str());
    if (handle != nullptr && kernel.address == nullptr) reason = "it does not define its function";
    if (kernel.address == nullptr) {
      warn_about(file, kernel, reason);
      continue;
    }
    kernel.origin = KernelOrigin::Compiler;
  }
}

void KernelLibrary::warn_about(const CompiledFile& file, const Wanted& kernel,
                               const std::string& reason) const {
  std::string message = "ahead: the kernel " + kernel.source.name + " cannot be used: " + reason;
  const std::string path =
      store_ == nullptr ? "" : store_->add_failed(kernel.source.name, file.source);
  if (!path.empty()) message += "\nIts source is " + path;
  warn_once(message);
}

namespace {

KernelLibrary& process_library() {
  static auto* library = new KernelLibrary({host_target(), find_cache_folder()});
  return *library;
}

}  // namespace

std::vector<KernelAddress> build_kernels(const std::vector<KernelSource>& sources,
                                         std::vector<KernelOrigin>* origins) {
  return process_library().build(sources, origins);
}

BuildCounters build_counters() {
  return process_library().counters();
}

BuildCounters KernelLibrary::counters() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return counters_;
}

}  // namespace ahead::native
