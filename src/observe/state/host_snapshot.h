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
  /// Whether the bytes are the same now.
  bool holds(const detail::HostParts& now) const;
  bool holds(const HostSnapshot& now) const;
  /// Whether all bytes are the same now that may tell if there is a tensor at the handle, as the
  /// flag of a std::optional does: the word before it and everything after it.
  bool holds_around(Handle handle, const HostSnapshot& now) const;
  /// Whether `later` differs only in handles to which the call assigned a tensor that it stored or
  /// moved.
  bool changed_by_storing(const HostSnapshot& later, const Tape& tape) const;
  size_t size() const { return bytes_.size(); }
  /// The word at a position.
  const void* pointer_at(size_t position) const;
  /// The positions of all words that are this pointer.
  std::vector<Handle> find(const void* pointer) const;

 private:
  bool is_same(size_t begin, const std::byte* now, size_t count) const;

  std::vector<std::byte> bytes_;
  std::vector<Handle> ignored_;  ///< in ascending order
};

}  // namespace ahead::observe
