#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <set>
#include <unordered_map>
#include <vector>

#include "ahead/memory.h"

namespace ahead::memory {

/// Memory in large segments, out of which blocks are cut and into which they are put back. What is
/// put back stays mapped for later blocks, up to a limit, so that the pages of a training step are
/// asked of the system once and not in every step. May be used by several threads at once.
class Heap {
 public:
  struct Counts {
    size_t in_use = 0;       ///< bytes of blocks
    size_t most_in_use = 0;  ///< of these, the most at once
    size_t mapped = 0;       ///< bytes of segments
  };

  Heap() = default;
  ~Heap();
  Heap(const Heap&) = delete;
  Heap& operator=(const Heap&) = delete;

  /// A block of at least so many bytes, aligned to 64, with any content; null if the system has no
  /// memory left.
  void* take(size_t bytes);
  /// Puts a block of this heap back.
  void put_back(void* block);
  /// Whether it is the address of a block in use.
  bool owns(void* block) const;
  /// How many bytes may stay mapped though no block is in them: whole segments beyond that are
  /// given back to the system. `as_much_as_was_in_use`: as many as were in use at once.
  void keep_at_most(size_t bytes);
  /// Gives back all segments in which no block is.
  void release();
  Counts counts() const;

 private:
  /// A part of a segment, in use or free; its neighbours in the segment are in order of address.
  struct Part {
    char* begin;
    size_t bytes;
    Part *before, *after;
    bool is_free;
  };
  struct BySize {
    bool operator()(const Part* one, const Part* other) const {
      return one->bytes != other->bytes ? one->bytes < other->bytes : one->begin < other->begin;
    }
  };

  Part* make_part(char* begin, size_t bytes, Part* before, Part* after);
  void drop(Part* part);
  Part* find_free(size_t bytes);
  Part* map_segment(size_t bytes);
  void split(Part* part, size_t bytes);
  Part* join(Part* part);
  bool is_whole_segment(const Part& part) const {
    return part.before == nullptr && part.after == nullptr;
  }
  void unmap_down_to(size_t free_bytes);
  size_t limit() const;

  mutable std::mutex mutex_;
  std::set<Part*, BySize> free_;
  std::unordered_map<void*, Part*> used_;
  std::vector<std::unique_ptr<Part>> spare_;  ///< parts that stand for nothing now
  size_t keep_at_most_ = as_much_as_was_in_use;
  Counts counts_;
};

}  // namespace ahead::memory
