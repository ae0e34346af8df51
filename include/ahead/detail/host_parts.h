#pragma once

#include <c10/util/SmallVector.h>

#include <cstddef>
#include <memory>
#include <type_traits>

namespace torch::nn {
class Module;
}

namespace ahead::detail {

/// What a ModuleHolder, or a shared_ptr to a module, points to; null: nothing.
template <class F>
auto watched_module(F& f) -> std::enable_if_t<
    std::is_convertible_v<decltype(f.ptr()), std::shared_ptr<torch::nn::Module>>,
    std::decay_t<decltype(f.ptr())>> {
  if (f.is_empty()) return nullptr;
  return f.ptr();
}
template <class M>
auto watched_module(std::shared_ptr<M>& f) -> std::enable_if_t<
    std::is_convertible_v<std::shared_ptr<M>, std::shared_ptr<torch::nn::Module>>,
    std::shared_ptr<M>> {
  return f;
}

/// Memory of the user's that a callable can see without being given it.
struct HostPart {
  const std::byte* begin = nullptr;
  size_t size = 0;
};
/// Tensors that modules announced, the callable's own object (what a lambda captured), and that of
/// the module it is.
using HostParts = c10::SmallVector<HostPart, 4>;

template <class T>
HostPart host_part(const T& object) {
  if constexpr (std::is_empty_v<T>) return {};
  return {reinterpret_cast<const std::byte*>(&object), sizeof(T)};
}

template <class F>
HostParts host_parts(F& f) {
  HostParts parts{host_part(f), HostPart()};
  if constexpr (requires { detail::watched_module(f); }) {
    if (const auto module = detail::watched_module(f)) parts[1] = host_part(*module);
  }
  return parts;
}

}  // namespace ahead::detail
