#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

#include "ahead/detail/host_parts.h"
#include "observe/state/host_snapshot.h"
#include "observe/tape/tape.h"

namespace ahead::observe {

/// The user's tensor at a handle. The bytes between handles must be as they were when the handle
/// was found.
at::Tensor& handle_at(const detail::HostParts& parts, Handle handle);

/// A handle that calls assign to.
struct KnownHandle {
  Handle handle;
  bool is_used = false;  ///< some call uses the handle's tensor
  /// The callable's bytes after a call that assigned to the handle.
  HostSnapshot assigned = {};
};

/// Whether handles have tensors like those that a recording began with.
bool holds(const std::vector<HeldTensor>& held, const detail::HostParts& now);

/// Finds the handles by which a callable has tensors, during one call of it.
class HandleWatch {
 public:
  /// To be made when a call begins, with `before` in the callable's parts. Looks at the tensors of
  /// `known` handles, but for handles that may be gone, as in a std::optional that was reset.
  HandleWatch(const detail::HostParts& parts, const HostSnapshot& before,
              const std::vector<KnownHandle>& known);

  /// Whether a known handle had this tensor when the call began.
  bool had(const at::Tensor& tensor) const;
  /// Completes the recording of the call when it is over: the handles of stored and of captured
  /// tensors, and the tensors that were moved from one handle to another. `owners`: how many hold a
  /// tensor besides those that are known.
  void finish(Tape& tape, const std::function<size_t(const WeakTensor&)>& owners);

 private:
  HeldTensor* find(Handle handle);
  HeldTensor& add(Handle handle);
  HeldTensor* holder_of(const void* tensor);
  void find_stored(Tape& tape, const HostSnapshot& after);
  void find_moved(Tape& tape, const HostSnapshot& after);
  void find_used(Tape& tape, const HostSnapshot& after,
                 const std::function<size_t(const WeakTensor&)>& owners);

  const detail::HostParts parts_;
  const HostSnapshot& before_;
  std::vector<HeldTensor> held_;
  /// Weak references, so that no other tensor gets the same address meanwhile.
  std::vector<WeakTensor> alive_;
};

}  // namespace ahead::observe
