#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "ahead/detail/host_parts.h"
#include "observe/state/host_snapshot.h"
#include "observe/tape/tape.h"

namespace ahead::observe {

/// The tensor that the user has there. The bytes between handles must be as they were when it was
/// found.
at::Tensor& handle_at(const detail::HostParts& parts, Handle handle);

/// A handle that calls assign to.
struct KnownHandle {
  Handle handle;
  bool is_used = false;  ///< some call uses what it has
  /// After a call that assigned to it.
  HostSnapshot assigned = {};
};

/// Whether handles have tensors such as a recording began with.
bool holds(const std::vector<HeldTensor>& held, const detail::HostParts& now);

/// Finds out by which handles of its own a callable has tensors, in one call of it.
class HandleWatch {
 public:
  /// A call begins, with `before` in the callable's parts. What `known` handles have is looked at,
  /// but for those that may be gone: the tensor of a std::optional that was reset.
  HandleWatch(const detail::HostParts& parts, const HostSnapshot& before,
              const std::vector<KnownHandle>& known);

  /// Whether a known handle had this tensor when the call began.
  bool had(const at::Tensor& tensor) const;
  /// Completes the recording of the call when it is over: where what it stored is, which of the
  /// tensors that it used were there before, and what was moved.
  void finish(Tape& tape);

 private:
  HeldTensor* find(Handle handle);
  HeldTensor& add(Handle handle);
  HeldTensor* holder_of(const void* tensor);
  void find_stored(Tape& tape, const HostSnapshot& after);
  void find_moved(Tape& tape, const HostSnapshot& after);
  void find_used(Tape& tape);

  const detail::HostParts parts_;
  const HostSnapshot& before_;
  std::vector<HeldTensor> held_;
  /// So that no other tensor has their address meanwhile.
  std::vector<WeakTensor> alive_;
};

}  // namespace ahead::observe
