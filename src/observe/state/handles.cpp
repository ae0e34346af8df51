#include "observe/state/handles.h"

#include <algorithm>

#include "observe/recorder/place.h"
#include "observe/state/entry_state.h"

namespace ahead::observe {
namespace {

const c10::TensorImpl* undefined() {
  return c10::UndefinedTensorImpl::singleton();
}

bool is_captured(const Tape& tape, const void* tensor) {
  return std::any_of(tape.captured.begin(), tape.captured.end(),
                     [&](const CapturedTensor& captured) {
                       return captured.tensor._unsafe_get_target() == tensor;
                     });
}

void note_first_same(std::vector<HeldTensor>& held) {
  for (size_t i = 0; i < held.size(); ++i) {
    const auto first = std::find_if(held.begin(), held.end(), [&](const HeldTensor& other) {
      return other.tensor == held[i].tensor;
    });
    held[i].first_same = first->handle;
  }
}

}  // namespace

at::Tensor& handle_at(const detail::HostParts& parts, Handle handle) {
  size_t left = handle;
  const detail::HostPart* part = parts.begin();
  for (; left >= part->size; ++part) left -= part->size;
  return *reinterpret_cast<at::Tensor*>(const_cast<std::byte*>(part->begin + left));
}

bool holds(const std::vector<HeldTensor>& held, const detail::HostParts& now) {
  for (const HeldTensor& each : held) {
    const at::Tensor& tensor = handle_at(now, each.handle);
    if (tensor.defined() != (each.tensor != nullptr)) return false;
    if (!tensor.defined()) continue;
    if (each.is_pinned && tensor.unsafeGetTensorImpl() != each.tensor) return false;
    for (const HeldTensor& other : held) {
      if (&other == &each) break;
      if (handle_at(now, other.handle).is_same(tensor) !=
          (other.first_same == each.first_same && other.tensor != nullptr))
        return false;
    }
    const bool is_compared = each.is_used && !each.is_captured && each.look;
    if (is_compared && !(has_place(tensor) && TensorMeta::of(tensor) == *each.look)) return false;
  }
  return true;
}

HandleWatch::HandleWatch(const detail::HostParts& parts, const HostSnapshot& before,
                         const std::vector<KnownHandle>& known)
    : parts_(parts), before_(before) {
  for (const KnownHandle& each : known) {
    if (!each.assigned.holds_around(each.handle, before)) continue;
    HeldTensor& held = add(each.handle);
    held.is_used = each.is_used;
    if (held.tensor == nullptr) continue;
    const at::Tensor& tensor = handle_at(parts_, each.handle);
    alive_.emplace_back(tensor.getIntrusivePtr());
    if (has_place(tensor)) held.look = TensorMeta::of(tensor);
  }
}

bool HandleWatch::had(const at::Tensor& tensor) const {
  return std::any_of(held_.begin(), held_.end(), [&](const HeldTensor& held) {
    return held.tensor == tensor.unsafeGetTensorImpl();
  });
}

void HandleWatch::finish(Tape& tape, const std::function<size_t(const WeakTensor&)>& owners) {
  const HostSnapshot after(parts_);
  find_stored(tape, after);
  if (!tape.stored.empty() || !held_.empty()) find_moved(tape, after);
  if (held_.empty()) return;
  find_used(tape, after, owners);
  std::sort(held_.begin(), held_.end(),
            [](const HeldTensor& a, const HeldTensor& b) { return a.handle < b.handle; });
  note_first_same(held_);
  tape.held = std::move(held_);
}

HeldTensor* HandleWatch::find(Handle handle) {
  const auto found = std::find_if(held_.begin(), held_.end(),
                                  [&](const HeldTensor& held) { return held.handle == handle; });
  return found == held_.end() ? nullptr : &*found;
}

HeldTensor& HandleWatch::add(Handle handle) {
  HeldTensor& held = held_.emplace_back(HeldTensor{handle});
  const auto* tensor = static_cast<const c10::TensorImpl*>(before_.pointer_at(handle));
  if (tensor != undefined()) held.tensor = tensor;
  return held;
}

HeldTensor* HandleWatch::holder_of(const void* tensor) {
  const auto found = std::find_if(held_.begin(), held_.end(), [&](const HeldTensor& held) {
    return held.tensor != nullptr && held.tensor == tensor;
  });
  return found == held_.end() ? nullptr : &*found;
}

/// Words that became the address of a tensor are its handles if it has as many unknown owners. A
/// word that had this address before the call is left over from something else, unless it is a
/// known handle: memory is used again.
void HandleWatch::find_stored(Tape& tape, const HostSnapshot& after) {
  for (StoredTensor& stored : tape.stored) {
    const at::Tensor tensor = lock(stored.tensor);
    if (!tensor.defined() || (tensor.is_leaf() && tensor.requires_grad())) continue;
    std::vector<Handle> handles = after.find(tensor.unsafeGetTensorImpl());
    std::erase_if(handles, [&](Handle handle) {
      return find(handle) == nullptr && before_.pointer_at(handle) == tensor.unsafeGetTensorImpl();
    });
    if (handles.size() != stored.owners) continue;
    for (Handle handle : handles) {
      if (find(handle) == nullptr) add(handle);
    }
    stored.handles = std::move(handles);
  }
}

/// Finds handles that were given the tensor that a known handle had, which may in turn show others.
void HandleWatch::find_moved(Tape& tape, const HostSnapshot& after) {
  bool is_done = false;
  while (!is_done) {
    is_done = true;
    for (Handle handle = 0; handle + sizeof(void*) <= after.size(); handle += sizeof(void*)) {
      const void *first = before_.pointer_at(handle), *now = after.pointer_at(handle);
      if (first == now || tape.stores(now)) continue;
      const HeldTensor* from = holder_of(now);
      const bool is_reset =
          now == undefined() && (find(handle) != nullptr || is_captured(tape, first));
      if (from == nullptr && !is_reset) continue;
      const bool is_known = std::any_of(tape.moved.begin(), tape.moved.end(),
                                        [&](const MovedTensor& move) { return move.to == handle; });
      if (is_known) continue;
      is_done = false;
      tape.moved.push_back({handle, from == nullptr ? std::nullopt : std::optional(from->handle)});
      if (find(handle) == nullptr) add(handle);
    }
  }
  std::sort(tape.moved.begin(), tape.moved.end(),
            [](const MovedTensor& a, const MovedTensor& b) { return a.to < b.to; });
}

/// A captured tensor that the callable had only in handles to which calls assign stands for
/// whatever these handles have. If nobody else holds it now, other words that are its address are
/// left over from something else.
void HandleWatch::find_used(Tape& tape, const HostSnapshot& after,
                            const std::function<size_t(const WeakTensor&)>& owners) {
  for (CapturedTensor& captured : tape.captured) {
    const void* tensor = captured.tensor._unsafe_get_target();
    const HeldTensor* holder = holder_of(tensor);
    if (holder == nullptr) continue;
    const std::vector<Handle> all = before_.find(tensor);
    const auto holds_now = std::count_if(held_.begin(), held_.end(), [&](const HeldTensor& held) {
      return after.pointer_at(held.handle) == tensor;
    });
    const bool is_elsewhere =
        std::any_of(all.begin(), all.end(), [&](Handle each) { return find(each) == nullptr; }) &&
        owners(captured.tensor) > static_cast<size_t>(holds_now);
    for (HeldTensor& held : held_) {
      if (held.tensor != tensor) continue;
      held.is_used = true;
      held.is_captured = true;
      held.is_pinned = is_elsewhere || captured.grad_of != nullptr;
      if (!held.look) held.look = captured.look;
    }
    if (!holder->is_pinned) captured.handle = holder->handle;
  }
}

}  // namespace ahead::observe
