#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ahead/compiled_autograd.h"
#include "engine/captured_program.h"
#include "engine/walk/backward.h"

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
  /// Keeps a program, unless another thread has added one for this backward meanwhile. Returns the
  /// one to be run.
  ///
  /// Beyond `limit`, the one goes that will not be used for longest, which may be the new one: so
  /// backwards that come in turn, and are too many, do not push each other out.
  Hit add(const Backward& backward, Hit made, int64_t limit);

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
  /// When a backward was used, in backwards looked for.
  struct Use {
    uint64_t last = 0;
    uint64_t interval = 0;  ///< between the last two times; 0: there was one only

    void note(uint64_t now);
    uint64_t expected_in(uint64_t now) const;
  };
  struct Entry {
    std::vector<uint8_t> key;
    std::vector<uint32_t> key_ends;  ///< for each step
    std::shared_ptr<Program> program;
    Use use;
    uint64_t number;
    uint64_t hash;  ///< of the key, and of the sizes if it is for no others
  };
  using Entries = std::deque<std::unique_ptr<Entry>>;

  static std::string difference(const Entry& entry, const Backward& backward);
  std::optional<Hit> find_hit(const Backward& backward);
  void tell_limit(int64_t limit);
  Use take_dropped_use(uint64_t hash);
  Entries::iterator find_least_needed();
  std::unique_ptr<Entry> drop(Entries::iterator entry);

  std::mutex mutex_;
  /// The one used last comes first.
  Entries entries_;
  /// When programs were used that are not kept any more, by hash; the last dropped last.
  std::deque<std::pair<uint64_t, Use>> dropped_;
  uint64_t now_ = 0;
  uint64_t next_number_ = 0;
  bool has_told_limit_ = false;
  compiled_autograd::Stats stats_;
  std::deque<std::string> reasons_;
};

}  // namespace ahead::engine
