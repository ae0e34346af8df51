#include "native/build/background.h"

#include <unistd.h>

#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include "native/build/process.h"

namespace ahead::native {
namespace {

/// A thread and what it has to do.
class Worker {
 public:
  Worker() : process_(::getpid()), thread_([this] { run(); }) {}

  bool is_of_this_process() const { return process_ == ::getpid(); }

  void add(std::function<void()> work) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      if (is_stopping_) return;
      work_.push_back(std::move(work));
    }
    has_work_.notify_one();
  }

  void stop() {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      is_stopping_ = true;
      work_.clear();
    }
    has_work_.notify_one();
    end_processes();
    thread_.join();
  }

 private:
  void run() {
    for (;;) {
      std::function<void()> next;
      {
        std::unique_lock<std::mutex> lock(mutex_);
        has_work_.wait(lock, [this] { return is_stopping_ || !work_.empty(); });
        if (is_stopping_) return;
        next = std::move(work_.front());
        work_.pop_front();
      }
      try {
        next();
      } catch (const std::exception&) {
        // Whoever waits for it goes on without.
      }
    }
  }

  const pid_t process_;
  std::mutex mutex_;
  std::condition_variable has_work_;
  std::deque<std::function<void()>> work_;
  bool is_stopping_ = false;
  std::thread thread_;
};

/// The worker of this process, which lives until the program ends.
class WorkerHolder {
 public:
  ~WorkerHolder() {
    if (worker_ != nullptr && worker_->is_of_this_process()) worker_->stop();
  }

  void add(std::function<void()> work) {
    std::lock_guard<std::mutex> lock(mutex_);
    // The parent's worker has no thread here, and nobody knows what its thread was doing.
    if (worker_ == nullptr || !worker_->is_of_this_process()) worker_ = new Worker;
    worker_->add(std::move(work));
  }

 private:
  std::mutex mutex_;
  Worker* worker_ = nullptr;
};

}  // namespace

void run_in_background(std::function<void()> work) {
  static WorkerHolder holder;
  holder.add(std::move(work));
}

}  // namespace ahead::native
