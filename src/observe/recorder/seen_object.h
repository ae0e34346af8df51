#pragma once

#include <ATen/core/ivalue.h>

#include <string>

namespace ahead::observe {

/// Stands in a recording for an object of a custom class that an operator was given: it is known by
/// identity, and not kept alive.
class SeenObject final : public torch::CustomClassHolder {
 public:
  explicit SeenObject(const c10::IValue& value);

  /// What a recording keeps of an argument: such an object if it is one, else the argument itself.
  static c10::IValue instead_of(const c10::IValue& value);
  /// The object that an argument of a recording stands for, or null.
  static const SeenObject* in(const c10::IValue& recorded);

  /// The argument again. Throws Unsupported if the object is gone.
  c10::IValue value() const;
  bool is_same(const SeenObject& other) const { return object_ == other.object_; }
  std::string str() const;

 private:
  const c10::TypePtr type_;
  const c10::weak_intrusive_ptr<torch::CustomClassHolder> object_;
};

}  // namespace ahead::observe
