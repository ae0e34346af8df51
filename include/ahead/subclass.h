#pragma once

/// Wrapper tensors: tensors of classes of your own, made of other tensors.
///
/// A wrapper looks like any tensor, to LibTorch and to autograd, but has no memory: what an
/// operator does with it is up to its class. A compiled function takes wrappers apart where it
/// begins and puts them together where it ends; its graphs hold the tensors inside and nothing of
/// the classes.
///
/// `flatten`, `unflatten`, `dispatch` and the coercions are the one kind of user code that sees
/// traced tensors. They must be pure: what they do follows from the arguments alone, by operators.
/// They read no values, keep no tensors, and change nothing but what the operator changes.

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>

#include <memory>
#include <string>
#include <type_traits>
#include <typeinfo>
#include <vector>

#include "ahead/export.h"

namespace ahead {

class WrapperTensor;

/// What a wrapper looks like from outside.
struct AHEAD_API WrapperLook {
  std::vector<int64_t> sizes, strides;
  int64_t offset = 0;
  at::ScalarType dtype = at::kFloat;
  at::Device device = at::kCPU;

  /// What this tensor looks like.
  static WrapperLook of(const at::Tensor& tensor);
  bool operator==(const WrapperLook& other) const = default;
};

/// A wrapper taken apart. The inner tensors do not require grad and may be wrappers themselves; the
/// metadata is constant: graphs are specialised on it.
struct WrapperParts {
  std::vector<at::Tensor> inner;
  c10::IValue metadata;
};

/// A class of wrappers, as compiled functions know it.
struct WrapperClass {
  const std::type_info* type;
  std::string name;
  std::shared_ptr<const WrapperTensor> (*unflatten)(WrapperParts parts);
};

/// What is inside a wrapper. Never changes; several tensors may share it. Derive from
/// WrapperTensorOf.
class AHEAD_API WrapperTensor {
 public:
  virtual ~WrapperTensor() = default;

  virtual const WrapperClass& wrapper_class() const = 0;
  /// The inner tensors and the metadata.
  virtual WrapperParts flatten() const = 0;
  /// Does what an operator does: finds its arguments on the stack and leaves its results there.
  /// It is called below autograd: no tensor it sees has a history of this level. An operator that
  /// returns an argument or a view of it must do so on the inner tensors. False: another class
  /// among the arguments is asked, and if there is none, the call fails.
  virtual bool dispatch(const c10::OperatorHandle& op, torch::jit::Stack& stack) const = 0;

  /// The gradient that is expected for a result like `self`, of which this is the inside: `self`
  /// with other metadata, if gradients come with others.
  virtual at::Tensor coerce_tangent(const at::Tensor& self) const;
  /// A gradient like `self`, of which this is the inside, with the class and metadata that were
  /// expected; undefined: it cannot be had.
  virtual at::Tensor coerce_same_metadata_as_tangent(const at::Tensor& self,
                                                     const WrapperClass& expected,
                                                     const c10::IValue& metadata) const;

 protected:
  WrapperTensor() = default;
  WrapperTensor(const WrapperTensor&) = default;
  WrapperTensor& operator=(const WrapperTensor&) = default;

  /// For dispatch: calls the operator once for each inner tensor, with that of each wrapper of this
  /// class in its place, and makes wrappers of this class and metadata of the results.
  void dispatch_to_each(const c10::OperatorHandle& op, torch::jit::Stack& stack) const;
};

/// The base of a class of wrappers, `class TwoTensor : public WrapperTensorOf<TwoTensor>`. It has a
/// `static std::shared_ptr<const TwoTensor> unflatten(ahead::WrapperParts)`, the inverse of
/// flatten, and a `static constexpr const char* class_name`.
template <class Self>
class WrapperTensorOf : public WrapperTensor {
 public:
  static const WrapperClass& wrapper_class_of() {
    static const WrapperClass made{&typeid(Self), Self::class_name,
                                   [](WrapperParts parts) -> std::shared_ptr<const WrapperTensor> {
                                     return Self::unflatten(std::move(parts));
                                   }};
    return made;
  }
  const WrapperClass& wrapper_class() const final { return wrapper_class_of(); }
};

/// A wrapper tensor around this. Throws UserError if an inner tensor requires grad.
AHEAD_API at::Tensor wrap(std::shared_ptr<const WrapperTensor> inside, const WrapperLook& look);

/// What is inside a wrapper; null: the tensor is none.
AHEAD_API std::shared_ptr<const WrapperTensor> inside_of(const at::Tensor& tensor);

/// What is inside a wrapper of this class; null: the tensor is none.
template <class T>
std::shared_ptr<const T> inside_of(const at::Tensor& tensor) {
  static_assert(std::is_base_of_v<WrapperTensor, T>);
  return std::dynamic_pointer_cast<const T>(inside_of(tensor));
}

}  // namespace ahead
