#pragma once

#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type_base.h>

#include <string>
#include <string_view>

/// Constant arguments: their text, and which of them an operator takes.
namespace ahead {

/// Stands for a constant that this process cannot make from its text: a user's own generator, an
/// object of a custom class, the generator of a device that is missing here. Any type of argument
/// accepts it, so that a program with one can be read, checked and compared; no kernel does.
class OpaqueConstant final : public torch::CustomClassHolder {
 public:
  explicit OpaqueConstant(std::string text) : text(std::move(text)) {}
  /// Makes the constant that prints as `function("argument")`.
  static c10::IValue make(std::string_view function, std::string_view argument);
  /// The constant behind an IValue, or null.
  static const OpaqueConstant* in(const c10::IValue& constant);

  const std::string text;
};

/// The object of a custom class (torch::class_) that an IValue holds; null: it holds none. There
/// may be many IValues of one object: each call of an operator makes one.
c10::intrusive_ptr<torch::CustomClassHolder> object_in(const c10::IValue& constant);

/// The default generator of a device, as a constant; opaque if the device is not there.
c10::IValue default_generator(const std::string& device);

/// Appends the text of a constant. The type is the argument's real type, which tells a dtype from
/// an integer; null if it is not known.
void append_constant(std::string& out, const c10::IValue& constant, const c10::Type* type);

/// Turns a constant as it was written into what an argument of this type holds: integers become
/// floats where floats are due, and lists get the element type.
c10::IValue coerce_constant(c10::IValue constant, const c10::TypePtr& type);

/// Whether an argument of this type may hold the constant. `none` stands for an undefined tensor.
bool accepts_constant(const c10::Type& type, const c10::IValue& constant);

/// The type without Optional around it.
const c10::Type& without_optional(const c10::Type& type);
/// Whether the type is Tensor or Tensor?.
bool is_tensor_type(const c10::Type& type);
/// Whether the type is a list of tensors, optional or not.
bool is_tensor_list_type(const c10::Type& type);

}  // namespace ahead
