#include "memory/scratch.h"

#include <atomic>
#include <cstdlib>
#include <new>

#include "memory/kept_memory.h"

namespace ahead::memory {
namespace {

/// More than a few rows need is given back.
constexpr size_t most_kept = size_t{4} << 20;
constexpr size_t alignment = 64;

std::atomic<size_t> kept_by_threads{0};

}  // namespace

Scratch::Place::~Place() {
  resize(0);
}

void Scratch::Place::resize(size_t bytes) {
  std::free(memory_);
  kept_by_threads -= bytes_;
  bytes_ = 0;
  memory_ = nullptr;
  if (bytes == 0) return;
  bytes = (bytes + alignment - 1) / alignment * alignment;
  memory_ = static_cast<char*>(std::aligned_alloc(alignment, bytes));
  if (memory_ == nullptr) throw std::bad_alloc();
  bytes_ = bytes;
  kept_by_threads += bytes;
}

Scratch::Scratch(Place& place, size_t bytes) : place_(place) {
  if (bytes > place.bytes_) place.resize(bytes);
}

Scratch::~Scratch() {
  if (place_.bytes_ > most_kept || !keeps_memory()) place_.resize(0);
}

size_t kept_scratch() {
  return kept_by_threads;
}

}  // namespace ahead::memory
