#include "observe/hook_closure.h"

#ifdef __GLIBCXX__
#include <malloc.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#endif
#include <cstring>
#include <string_view>

namespace ahead::observe {
namespace {

using Function = HookClosure::Function;

#ifdef __GLIBCXX__

/// What a std::function of libstdc++ consists of: room for a small closure or a pointer to a large
/// one, and two functions that know its type.
struct Layout {
  std::_Any_data closure;
  bool (*manage)(std::_Any_data&, const std::_Any_data&, std::_Manager_operation);
  void* invoke;
};
static_assert(sizeof(Layout) == sizeof(Function));

Layout layout_of(const Function& function) {
  Layout layout;
  std::memcpy(static_cast<void*>(&layout), &function, sizeof layout);
  return layout;
}

/// The closure, if it does not lie in the std::function itself; else null.
void* closure_on_heap(const Layout& layout) {
  std::_Any_data found;
  layout.manage(found, layout.closure, std::__get_functor_ptr);
  void* closure = found._M_access<void*>();
  return closure == layout.closure._M_access() ? nullptr : closure;
}

std::string_view bytes_of(const Layout& layout) {
  if (void* closure = closure_on_heap(layout))
    return {static_cast<const char*>(closure), malloc_usable_size(closure)};
  return {static_cast<const char*>(layout.closure._M_access()), sizeof layout.closure};
}

/// A copy whose memory behind the closure's end, which belongs to nobody, is zero: the allocator
/// gives out again what it was given back last, of which it keeps a few.
Function copy_of(const Function& hook) {
  if (void* closure = closure_on_heap(layout_of(hook))) {
    const size_t size = malloc_usable_size(closure);
    std::array<void*, 8> next;
    for (void*& memory : next) {
      memory = std::malloc(size);
      // Volatile, since nobody is seen to read it. Not calloc, which has other memory.
      std::fill_n(static_cast<volatile char*>(memory), size, '\0');
    }
    for (void* memory : next) std::free(memory);
  }
  return hook;
}

bool is_same_closure(const Function& a, const Function& b) {
  const Layout x = layout_of(a), y = layout_of(b);
  return x.manage == y.manage && x.invoke == y.invoke && bytes_of(x) == bytes_of(y);
}

#else

Function copy_of(const Function& hook) {
  return hook;
}

bool is_same_closure(const Function&, const Function&) {
  return false;
}

#endif

}  // namespace

HookClosure::HookClosure(const Function& hook) : function_(copy_of(hook)) {}

bool HookClosure::is_same(const HookClosure& other) const {
  return this == &other || is_same_closure(function_, other.function_);
}

}  // namespace ahead::observe
