#include "observe/tape/hook_closure.h"

#ifdef __GLIBCXX__
#include <malloc.h>

#include <cstdlib>
#endif
#include <algorithm>
#include <cstring>
#include <string_view>
#include <vector>

#include "ahead/errors.h"

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

/// A copy of the hook, with zeros between the end of its closure and the end of its allocation, so
/// that copies can be compared byte by byte. Memory is zeroed and freed before, which the allocator
/// hands out again soon. Allocations may differ in size; the smallest is zeroed.
Function copy_of(const Function& hook) {
  void* closure = closure_on_heap(layout_of(hook));
  if (closure == nullptr) return hook;
  size_t size = malloc_usable_size(closure);
  std::vector<Function> others;
  others.reserve(16);
  for (int attempt = 0; attempt < 16; ++attempt) {
    void* memory = std::malloc(size);
    // Volatile: otherwise the compiler drops writes to memory that is freed unread.
    std::fill_n(static_cast<volatile char*>(memory), size, '\0');
    const auto place = reinterpret_cast<uintptr_t>(memory);
    std::free(memory);
    const Function& copy = others.emplace_back(hook);
    closure = closure_on_heap(layout_of(copy));
    if (reinterpret_cast<uintptr_t>(closure) == place) return std::move(others.back());
    size = std::min(size, malloc_usable_size(closure));
  }
  return hook;
}

/// Calls visit(offset, pointer) for each pointer that a closure may have as an owner. A closure
/// that lies in the std::function itself owns nothing.
template <class Visit>
void for_each_pointer(const Function& hook, Visit&& visit) {
  const auto* closure = static_cast<const char*>(closure_on_heap(layout_of(hook)));
  if (closure == nullptr) return;
  const size_t size = malloc_usable_size(const_cast<char*>(closure));
  for (size_t offset = 0; offset + sizeof(void*) <= size; offset += sizeof(void*)) {
    void* pointer = nullptr;
    std::memcpy(&pointer, closure + offset, sizeof pointer);
    visit(offset, pointer);
  }
}

at::Tensor& handle_at(const Function& hook, size_t offset) {
  auto* closure = static_cast<char*>(closure_on_heap(layout_of(hook)));
  return *reinterpret_cast<at::Tensor*>(closure + offset);
}

bool is_same_closure(const Function& a, const Function& b) {
  const Layout x = layout_of(a), y = layout_of(b);
  const std::string_view first = bytes_of(x), second = bytes_of(y);
  const size_t size = std::min(first.size(), second.size());
  return x.manage == y.manage && x.invoke == y.invoke &&
         first.substr(0, size) == second.substr(0, size);
}

#else

Function copy_of(const Function& hook) {
  return hook;
}

template <class Visit>
void for_each_pointer(const Function&, Visit&&) {}

at::Tensor& handle_at(const Function&, size_t) {
  throw InternalError("observe", "nothing is known of closures here.");
}

bool is_same_closure(const Function&, const Function&) {
  return false;
}

#endif

}  // namespace

HookClosure::HookClosure(const Function& hook,
                         const std::function<int32_t(const void*)>& variable_of) {
  struct Found {
    c10::TensorImpl* tensor;
    size_t owners_before;
    std::vector<Handle> handles;
  };
  std::vector<Found> found;
  for_each_pointer(hook, [&](size_t offset, void* pointer) {
    const int32_t variable = variable_of(pointer);
    if (variable < 0) return;
    auto* tensor = static_cast<c10::TensorImpl*>(pointer);
    const auto known = std::find_if(found.begin(), found.end(),
                                    [&](const Found& each) { return each.tensor == tensor; });
    Found& each =
        known != found.end()
            ? *known
            : found.emplace_back(Found{tensor, c10::raw::intrusive_ptr::use_count(tensor), {}});
    each.handles.push_back({offset, variable});
  });
  function_ = copy_of(hook);
  // A pointer that owns the tensor: a copy of the closure is one owner more.
  for (const Found& each : found) {
    const size_t owners = c10::raw::intrusive_ptr::use_count(each.tensor);
    if (owners != each.owners_before + each.handles.size()) continue;
    handles_.insert(handles_.end(), each.handles.begin(), each.handles.end());
  }
  for (const Handle& handle : handles_) handle_at(function_, handle.offset) = at::Tensor();
}

std::vector<int32_t> HookClosure::variables() const {
  std::vector<int32_t> variables;
  for (const Handle& handle : handles_) variables.push_back(handle.variable);
  return variables;
}

bool HookClosure::holds(const void* tensor) const {
  bool is_found = false;
  for_each_pointer(function_, [&](size_t, const void* pointer) { is_found |= pointer == tensor; });
  return is_found;
}

Function HookClosure::function(const std::vector<at::Tensor>& variables) const {
  Function hook = function_;
  for (size_t i = 0; i < handles_.size(); ++i)
    handle_at(hook, handles_[i].offset) = variables.at(i);
  return hook;
}

bool HookClosure::is_same(const HookClosure& other) const {
  return this == &other || is_same_closure(function_, other.function_);
}

}  // namespace ahead::observe
