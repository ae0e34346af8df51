#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/function.h>

#include <cstring>
#include <memory>
#include <type_traits>
#include <utility>

/// Every difference between the LibTorch versions that Ahead supports, and what none of them
/// offers.
namespace ahead {

/// How LibTorch holds an autograd node: std::shared_ptr in 2.11, c10::intrusive_ptr since 2.13.
using NodePtr = decltype(torch::autograd::Edge::function);

/// Makes an autograd node the way this version of LibTorch holds it.
template <class T, class... Args>
NodePtr make_autograd_node(Args&&... args) {
  if constexpr (std::is_same_v<NodePtr, std::shared_ptr<torch::autograd::Node>>) {
    return std::make_shared<T>(std::forward<Args>(args)...);
  } else {
    return c10::make_intrusive<T>(std::forward<Args>(args)...);
  }
}

/// borrow() lets a pointer refer to a node that others keep alive, without counting a reference;
/// give_back() clears that pointer, without dropping one.
template <class T>
void borrow(std::shared_ptr<T>& pointer, T& node) {
  pointer = std::shared_ptr<T>(std::shared_ptr<T>(), &node);
}
template <class T>
void borrow(c10::intrusive_ptr<T>& pointer, T& node) {
  pointer = c10::intrusive_ptr<T>::reclaim(&node);
}
template <class T>
void give_back(std::shared_ptr<T>& pointer) {
  pointer.reset();
}
template <class T>
void give_back(c10::intrusive_ptr<T>& pointer) {
  pointer.release();
}

/// A weak reference to an autograd node, as LibTorch holds the AccumulateGrad of a leaf.
template <class T>
std::weak_ptr<T> weak(const std::shared_ptr<T>& node) {
  return node;
}
template <class T>
c10::weak_intrusive_ptr<T> weak(const c10::intrusive_ptr<T>& node) {
  return c10::weak_intrusive_ptr<T>(node);
}

/// Whether a write to one tensor raises the version of the other. LibTorch does not say; its
/// VariableVersion is one pointer to the counter.
inline bool share_version_counter(const at::Tensor& a, const at::Tensor& b) {
  static_assert(sizeof(c10::VariableVersion) == sizeof(void*));
  // NOLINTNEXTLINE(bugprone-suspicious-memory-comparison): a pointer has one representation
  return std::memcmp(&a.unsafeGetTensorImpl()->version_counter(),
                     &b.unsafeGetTensorImpl()->version_counter(), sizeof(void*)) == 0;
}

}  // namespace ahead
