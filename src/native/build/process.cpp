#include "native/build/process.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <mutex>
#include <set>

namespace ahead::native {
namespace {

/// The children that run. They are known until they are reaped, so that no other process can have
/// the number of one of them.
class Children {
 public:
  /// Never freed: a thread may be reading its child's output when the program ends.
  static Children& instance() {
    static auto* children = new Children;
    return *children;
  }

  void add(pid_t child) {
    std::lock_guard<std::mutex> lock(mutex_);
    running_.insert(child);
    if (are_ended_) ::kill(-child, SIGTERM);
  }

  /// Waits for the end of a child; its exit status.
  int reap(pid_t child) {
    siginfo_t info;
    while (::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT) != 0 &&
           errno == EINTR) {
    }
    std::lock_guard<std::mutex> lock(mutex_);
    running_.erase(child);
    int status = 0;
    // Where the program ignores SIGCHLD nobody learns the status; what the child wrote has to tell.
    if (::waitpid(child, &status, 0) < 0) return 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

  void end_all() {
    std::lock_guard<std::mutex> lock(mutex_);
    are_ended_ = true;
    for (const pid_t child : running_) ::kill(-child, SIGTERM);
  }

  bool are_ended() {
    std::lock_guard<std::mutex> lock(mutex_);
    return are_ended_;
  }

 private:
  std::mutex mutex_;
  std::set<pid_t> running_;
  bool are_ended_ = false;
};

/// What a child starts with: no input, its output in our pipe, no signals blocked, and a group of
/// its own, so that what it starts can be ended with it.
class SpawnSetup {
 public:
  explicit SpawnSetup(int output) {
    ::posix_spawn_file_actions_init(&actions_);
    ::posix_spawn_file_actions_addopen(&actions_, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    ::posix_spawn_file_actions_adddup2(&actions_, output, STDOUT_FILENO);
    ::posix_spawn_file_actions_adddup2(&actions_, output, STDERR_FILENO);
    ::posix_spawnattr_init(&attributes_);
    sigset_t none;
    ::sigemptyset(&none);
    ::posix_spawnattr_setsigmask(&attributes_, &none);
    ::posix_spawnattr_setpgroup(&attributes_, 0);
    ::posix_spawnattr_setflags(&attributes_, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETPGROUP);
  }
  SpawnSetup(const SpawnSetup&) = delete;
  SpawnSetup& operator=(const SpawnSetup&) = delete;
  ~SpawnSetup() {
    ::posix_spawnattr_destroy(&attributes_);
    ::posix_spawn_file_actions_destroy(&actions_);
  }

  const posix_spawn_file_actions_t* actions() const { return &actions_; }
  const posix_spawnattr_t* attributes() const { return &attributes_; }

 private:
  posix_spawn_file_actions_t actions_;
  posix_spawnattr_t attributes_;
};

std::string read_to_end(int file) {
  std::string text;
  std::array<char, 4096> part;
  for (;;) {
    const ssize_t count = ::read(file, part.data(), part.size());
    if (count > 0) text.append(part.data(), static_cast<size_t>(count));
    if (count == 0 || (count < 0 && errno != EINTR)) return text;
  }
}

}  // namespace

ProcessResult run_process(const std::string& program, const std::vector<std::string>& arguments) {
  ProcessResult result;
  std::array<int, 2> pipe{};
  if (::pipe2(pipe.data(), O_CLOEXEC) != 0) return result;
  std::vector<char*> argv{const_cast<char*>(program.c_str())};
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  const SpawnSetup setup(pipe[1]);
  pid_t child = 0;
  result.started = ::posix_spawn(&child, program.c_str(), setup.actions(), setup.attributes(),
                                 argv.data(), environ) == 0;
  if (result.started) Children::instance().add(child);
  ::close(pipe[1]);
  if (result.started) {
    result.output = read_to_end(pipe[0]);
    result.status = Children::instance().reap(child);
  }
  ::close(pipe[0]);
  return result;
}

void end_processes() {
  Children::instance().end_all();
}

bool are_processes_ended() {
  return Children::instance().are_ended();
}

}  // namespace ahead::native
