#include "observe/state/host_snapshot.h"

#include <algorithm>
#include <cstring>

namespace ahead::observe {
namespace {

constexpr size_t word = sizeof(void*);

bool is_moved(const Tape& tape, Handle handle) {
  return std::any_of(tape.moved.begin(), tape.moved.end(),
                     [&](const MovedTensor& moved) { return moved.to == handle; });
}

}  // namespace

HostSnapshot::HostSnapshot(const detail::HostParts& parts) {
  for (const detail::HostPart& part : parts)
    bytes_.insert(bytes_.end(), part.begin, part.begin + part.size);
}

void HostSnapshot::ignore(const std::vector<HeldTensor>& held) {
  for (const HeldTensor& each : held) ignored_.push_back(each.handle);
  std::sort(ignored_.begin(), ignored_.end());
}

/// Whether bytes from a position on are these, but for ignored words.
bool HostSnapshot::is_same(size_t begin, const std::byte* now, size_t count) const {
  const size_t end = begin + count;
  size_t position = begin;
  const auto compare_up_to = [&](size_t next) {
    const size_t length = next - position;
    return length == 0 || std::memcmp(&bytes_[position], now + (position - begin), length) == 0;
  };
  for (Handle handle : ignored_) {
    if (handle < begin || handle + word > end) continue;
    if (!compare_up_to(handle)) return false;
    position = handle + word;
  }
  return compare_up_to(end);
}

bool HostSnapshot::holds(const detail::HostParts& now) const {
  size_t position = 0;
  for (const detail::HostPart& part : now) {
    if (part.size > bytes_.size() - position) return false;
    if (!is_same(position, part.begin, part.size)) return false;
    position += part.size;
  }
  return position == bytes_.size();
}

bool HostSnapshot::holds(const HostSnapshot& now) const {
  return bytes_.size() == now.bytes_.size() && is_same(0, now.bytes_.data(), bytes_.size());
}

bool HostSnapshot::holds_around(Handle handle, const HostSnapshot& now) const {
  const size_t begin = handle < word ? 0 : handle - word;
  return bytes_.size() == now.bytes_.size() &&
         is_same(begin, now.bytes_.data() + begin, bytes_.size() - begin);
}

bool HostSnapshot::changed_by_storing(const HostSnapshot& later, const Tape& tape) const {
  if (bytes_.size() != later.bytes_.size()) return false;
  for (size_t i = 0; i < bytes_.size(); i += word) {
    const size_t count = std::min(word, bytes_.size() - i);
    if (std::memcmp(&bytes_[i], &later.bytes_[i], count) == 0) continue;
    if (count < word) return false;
    if (!tape.stores(later.pointer_at(i)) && !is_moved(tape, static_cast<Handle>(i))) return false;
  }
  return true;
}

const void* HostSnapshot::pointer_at(size_t position) const {
  const void* pointer = nullptr;
  std::memcpy(&pointer, &bytes_[position], word);
  return pointer;
}

std::vector<Handle> HostSnapshot::find(const void* pointer) const {
  std::vector<Handle> found;
  for (size_t i = 0; i + word <= bytes_.size(); i += word) {
    if (pointer_at(i) == pointer) found.push_back(static_cast<Handle>(i));
  }
  return found;
}

}  // namespace ahead::observe
