#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "ahead/compiled_autograd.h"
#include "engine/backward.h"
#include "engine/program.h"

namespace ahead::engine {

/// The programs of all backwards seen in this process, and what is told about them. Several threads
/// may use it at once.
class Cache {
 public:
  static Cache& instance();

  /// A program for a backward, and the values of the sizes that change from run to run.
  struct Hit {
    std::shared_ptr<Program> program;
    std::vector<int64_t> sizes;
  };
  /// Why there is none, in words, and the most recent one that is for other sizes only; null: there
  /// is none such.
  struct Miss {
    std::string reason;
    std::shared_ptr<Program> like;
  };
  std::optional<Hit> find(const Backward& backward, Miss& miss);
  /// Keeps a program. If there are more than `limit` then, the one unused for longest goes.
  void add(const Backward& backward, std::shared_ptr<Program> program, int64_t limit);

  /// Changes the counts.
  template <class Change>
  void count(Change&& change) {
    std::lock_guard<std::mutex> lock(mutex_);
    change(stats_);
  }
  void note(std::string reason);

  compiled_autograd::Stats stats();
  std::vector<std::string> reasons();
  std::vector<std::shared_ptr<const Graph>> graphs();
  void clear();

 private:
  struct Entry {
    std::vector<uint8_t> key;
    std::vector<uint32_t> key_ends;  ///< for each step
    std::shared_ptr<Program> program;
    uint64_t last_use;
    uint64_t number;
  };

  static std::string difference(const Entry& entry, const Backward& backward);

  std::mutex mutex_;
  /// The one used last comes first.
  std::deque<std::unique_ptr<Entry>> entries_;
  uint64_t next_number_ = 0;
  compiled_autograd::Stats stats_;
  std::deque<std::string> reasons_;
};

}  // namespace ahead::engine
