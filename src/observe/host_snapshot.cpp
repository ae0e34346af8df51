#include "observe/host_snapshot.h"

#include <algorithm>
#include <cstring>

namespace ahead::observe {
namespace {

constexpr size_t word = sizeof(void*);

const void* pointer_at(const std::vector<std::byte>& bytes, size_t position) {
  const void* pointer = nullptr;
  std::memcpy(&pointer, &bytes[position], word);
  return pointer;
}

bool is_stored(const Tape& tape, const void* pointer) {
  return std::any_of(tape.stored.begin(), tape.stored.end(), [&](const StoredTensor& stored) {
    return stored.tensor._unsafe_get_target() == pointer;
  });
}

}  // namespace

HostSnapshot::HostSnapshot(const detail::HostParts& parts) {
  for (const detail::HostPart& part : parts)
    bytes_.insert(bytes_.end(), part.begin, part.begin + part.size);
}

bool HostSnapshot::holds(const detail::HostParts& now) const {
  size_t position = 0;
  for (const detail::HostPart& part : now) {
    if (part.size > bytes_.size() - position) return false;
    if (part.size != 0 && std::memcmp(&bytes_[position], part.begin, part.size) != 0) return false;
    position += part.size;
  }
  return position == bytes_.size();
}

bool HostSnapshot::changed_by_storing(const HostSnapshot& later, const Tape& tape) const {
  if (bytes_.size() != later.bytes_.size()) return false;
  for (size_t i = 0; i < bytes_.size(); i += word) {
    const size_t count = std::min(word, bytes_.size() - i);
    if (std::memcmp(&bytes_[i], &later.bytes_[i], count) == 0) continue;
    if (count < word || !is_stored(tape, pointer_at(later.bytes_, i))) return false;
  }
  return true;
}

bool HostSnapshot::contains(const void* pointer) const {
  for (size_t i = 0; i + word <= bytes_.size(); i += word) {
    if (pointer_at(bytes_, i) == pointer) return true;
  }
  return false;
}

}  // namespace ahead::observe
