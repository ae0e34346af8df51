#pragma once

#include <string>
#include <vector>

#include "ahead/detail/host_parts.h"
#include "observe/tape/tape.h"

namespace ahead::observe {

/// The bytes of a callable's own object and of the module it is, as they were.
class HostSnapshot {
 public:
  HostSnapshot() = default;
  explicit HostSnapshot(const detail::HostParts& parts);

  /// Which tensors these handles have is not compared from now on.
  void ignore(const std::vector<HeldTensor>& held);
  /// Whether they are the same now.
  bool holds(const detail::HostParts& now) const;
  bool holds(const HostSnapshot& now) const;
  /// Whether whatever tells if there is a tensor at a handle is the same now: what may be in one
  /// object with it, which is what comes after it, and the word before.
  bool holds_around(Handle handle, const HostSnapshot& now) const;
  /// Whether they changed to `later` in no other way than that tensors were assigned to, which the
  /// call stored, or moved.
  bool changed_by_storing(const HostSnapshot& later, const Tape& tape) const;
  size_t size() const { return bytes_.size(); }
  /// The word there.
  const void* pointer_at(size_t position) const;
  /// All words that are this pointer.
  std::vector<Handle> find(const void* pointer) const;

 private:
  bool is_same(size_t begin, const std::byte* now, size_t count) const;

  std::vector<std::byte> bytes_;
  std::vector<Handle> ignored_;  ///< in ascending order
};

}  // namespace ahead::observe
