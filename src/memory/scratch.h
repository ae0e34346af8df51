#pragma once

#include <cstddef>

namespace ahead::memory {

/// Memory for what one thread computes with, of any content, aligned to 64. A piece of ordinary size
/// stays with the place that asked for it, for its next calls, and counts among what is kept, unless
/// nothing is to be kept (keep_at_most).
class Scratch {
 public:
  /// Where a thread keeps a piece; a thread_local variable of whoever asks for one.
  class Place {
   public:
    Place() = default;
    ~Place();
    Place(const Place&) = delete;
    Place& operator=(const Place&) = delete;

   private:
    friend class Scratch;
    void resize(size_t bytes);

    char* memory_ = nullptr;
    size_t bytes_ = 0;
  };

  /// Takes at least so many bytes. A place serves one at a time.
  Scratch(Place& place, size_t bytes);
  ~Scratch();
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  char* get() const { return place_.memory_; }

 private:
  Place& place_;
};

/// What all threads keep so.
size_t kept_scratch();

}  // namespace ahead::memory
