#include "memory/heap.h"

#include <sys/mman.h>

#include <algorithm>
#include <utility>

namespace ahead::memory {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kSegment = 16 * kHugePage;
constexpr size_t kAlignment = 64;
/// Blocks of the same power of two would begin in the same set of every cache.
constexpr size_t kStagger = 5 * kAlignment;
/// A rest that is smaller stays with the block before it.
constexpr size_t kSmallestRest = size_t{32} << 10;

size_t round_up(size_t bytes, size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

/// Maps memory that begins at a large page. Large pages are asked for, since each first touch of a
/// small one interrupts the kernel that writes there.
char* map_aligned(size_t bytes) {
  void* mapped =
      mmap(nullptr, bytes + kHugePage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  auto* begin = static_cast<char*>(mapped);
  auto* aligned = reinterpret_cast<char*>(round_up(reinterpret_cast<uintptr_t>(begin), kHugePage));
  if (aligned != begin) munmap(begin, static_cast<size_t>(aligned - begin));
  const size_t rest = kHugePage - static_cast<size_t>(aligned - begin);
  if (rest != 0) munmap(aligned + bytes, rest);
  madvise(aligned, bytes, MADV_HUGEPAGE);
  return aligned;
}

}  // namespace

Heap::~Heap() {
  release();
  for (Part* part : free_) delete part;
  for (const auto& [block, part] : used_) delete part;
}

void* Heap::take(size_t bytes) {
  const std::lock_guard lock(mutex_);
  const size_t wanted = round_up(bytes, kAlignment) + kStagger;
  Part* part = find_free(wanted);
  if (part == nullptr) part = map_segment(wanted);
  if (part == nullptr) return nullptr;
  free_.erase(part);
  split(part, wanted);
  part->is_free = false;
  used_.emplace(part->begin, part);
  counts_.in_use += part->bytes;
  counts_.most_in_use = std::max(counts_.most_in_use, counts_.in_use);
  return part->begin;
}

void Heap::put_back(void* block) {
  const std::lock_guard lock(mutex_);
  const auto found = used_.find(block);
  Part* part = found->second;
  used_.erase(found);
  counts_.in_use -= part->bytes;
  part->is_free = true;
  free_.insert(join(part));
  if (keep_at_most_ != as_much_as_was_in_use) unmap_down_to(keep_at_most_);
}

bool Heap::owns(void* block) const {
  const std::lock_guard lock(mutex_);
  return used_.contains(block);
}

void Heap::keep_at_most(size_t bytes) {
  const std::lock_guard lock(mutex_);
  keep_at_most_ = bytes;
  unmap_down_to(limit());
}

void Heap::release() {
  const std::lock_guard lock(mutex_);
  unmap_down_to(0);
  counts_.most_in_use = counts_.in_use;
}

Heap::Counts Heap::counts() const {
  const std::lock_guard lock(mutex_);
  return counts_;
}

size_t Heap::limit() const {
  return keep_at_most_ == as_much_as_was_in_use ? counts_.most_in_use : keep_at_most_;
}

Heap::Part* Heap::make_part(char* begin, size_t bytes, Part* before, Part* after) {
  std::unique_ptr<Part> part;
  if (spare_.empty()) {
    part = std::make_unique<Part>();
  } else {
    part = std::move(spare_.back());
    spare_.pop_back();
  }
  *part = {begin, bytes, before, after, /*is_free=*/true};
  return part.release();
}

void Heap::drop(Part* part) {
  spare_.emplace_back(part);
}

/// The smallest that is large enough.
Heap::Part* Heap::find_free(size_t bytes) {
  Part wanted{nullptr, bytes, nullptr, nullptr, false};
  const auto found = free_.lower_bound(&wanted);
  return found == free_.end() ? nullptr : *found;
}

/// What is free but too small for the block gives way first, so that a program whose sizes grow
/// does not hold more than it ever used.
Heap::Part* Heap::map_segment(size_t bytes) {
  const size_t most = limit();
  unmap_down_to(most > counts_.in_use + bytes ? most - counts_.in_use - bytes : 0);
  const size_t size = std::max(round_up(bytes, kHugePage), kSegment);
  char* begin = map_aligned(size);
  if (begin == nullptr) return nullptr;
  counts_.mapped += size;
  Part* part = make_part(begin, size, nullptr, nullptr);
  free_.insert(part);
  return part;
}

/// Leaves the part with so many bytes, and the rest, unless it is small, free.
void Heap::split(Part* part, size_t bytes) {
  if (part->bytes - bytes < kSmallestRest) return;
  Part* rest = make_part(part->begin + bytes, part->bytes - bytes, part, part->after);
  if (rest->after != nullptr) rest->after->before = rest;
  part->after = rest;
  part->bytes = bytes;
  free_.insert(rest);
}

/// Makes one of a part and its free neighbours, which leave the list.
Heap::Part* Heap::join(Part* part) {
  const auto append = [&](Part* first, Part* second) {
    first->bytes += second->bytes;
    first->after = second->after;
    if (second->after != nullptr) second->after->before = first;
    drop(second);
    return first;
  };
  if (part->after != nullptr && part->after->is_free) {
    free_.erase(part->after);
    append(part, part->after);
  }
  if (part->before != nullptr && part->before->is_free) {
    free_.erase(part->before);
    part = append(part->before, part);
  }
  return part;
}

/// Gives whole segments back until at most so many bytes are free, or none is left.
void Heap::unmap_down_to(size_t free_bytes) {
  for (auto next = free_.rbegin();
       next != free_.rend() && counts_.mapped - counts_.in_use > free_bytes;) {
    Part* part = *next;
    if (!is_whole_segment(*part)) {
      ++next;
      continue;
    }
    munmap(part->begin, part->bytes);
    counts_.mapped -= part->bytes;
    next = std::make_reverse_iterator(free_.erase(std::next(next).base()));
    drop(part);
  }
}

}  // namespace ahead::memory
