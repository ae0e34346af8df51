#pragma once

#include <string>
#include <vector>

#include "ahead/detail/host_parts.h"
#include "observe/tape.h"

namespace ahead::observe {

/// The bytes of a callable's own object and of the module it is, as they were.
class HostSnapshot {
 public:
  HostSnapshot() = default;
  explicit HostSnapshot(const detail::HostParts& parts);

  /// Whether they are the same now.
  bool holds(const detail::HostParts& now) const;
  bool holds(const HostSnapshot& now) const { return bytes_ == now.bytes_; }
  /// Whether they changed to `later` in no other way than that tensors were assigned to, which the
  /// call stored or had before.
  bool changed_by_storing(const HostSnapshot& later, const Tape& tape) const;
  /// Whether a word of them is this pointer.
  bool contains(const void* pointer) const;

 private:
  std::vector<std::byte> bytes_;
};

}  // namespace ahead::observe
