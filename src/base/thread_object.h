#pragma once

#include <utility>

namespace ahead {

/// The object of this thread for a purpose, which any type names. It is freed when the thread ends.
/// Whoever asks afterwards gets a new one that is not: static destructors run when what belongs to
/// the main thread is gone, and may trace something.
template <class T, class Purpose>
T& thread_object() {
  thread_local T* object = nullptr;
  struct Owner {
    ~Owner() { delete std::exchange(object, nullptr); }
  };
  if (object == nullptr) {
    thread_local const Owner owner;
    static_cast<void>(&owner);
    object = new T;
  }
  return *object;
}

}  // namespace ahead
