#include "ir/constants.h"

#include <ATen/Context.h>
#include <ATen/core/jit_type.h>

#include <algorithm>

#include "base/text.h"
#include "ir/names.h"
#include "ir/sizes/expression_node.h"

namespace ahead {
namespace {

using c10::TypeKind;

/// The kind of IValue that holds a value of this type: the dispatcher knows no dtypes, layouts or
/// symbolic numbers, only numbers.
TypeKind stored_kind(const c10::Type& type) {
  switch (type.kind()) {
    case TypeKind::SymIntType:
    case TypeKind::ScalarTypeType:
    case TypeKind::LayoutType:
    case TypeKind::MemoryFormatType:
    case TypeKind::QSchemeType:
      return TypeKind::IntType;
    case TypeKind::SymFloatType:
      return TypeKind::FloatType;
    case TypeKind::SymBoolType:
      return TypeKind::BoolType;
    default:
      return type.kind();
  }
}

c10::TypePtr stored_type(const c10::TypePtr& type) {
  switch (stored_kind(*type)) {
    case TypeKind::IntType:
      return c10::IntType::get();
    case TypeKind::FloatType:
      return c10::FloatType::get();
    case TypeKind::BoolType:
      return c10::BoolType::get();
    case TypeKind::ListType:
      return c10::ListType::create(stored_type(type->castRaw<c10::ListType>()->getElementType()));
    case TypeKind::OptionalType:
      return c10::OptionalType::create(
          stored_type(type->castRaw<c10::OptionalType>()->getElementType()));
    default:
      return type;
  }
}

bool is_number_of_sizes(const c10::IValue& constant) {
  return constant.isSymFloat() && FloatNode::in(constant.toSymFloat()) != nullptr;
}

bool is_size(const c10::IValue& constant) {
  return constant.isSymInt() && SizeNode::in(constant.toSymInt()) != nullptr;
}

bool is_number(const c10::IValue& constant) {
  return is_size(constant) || is_number_of_sizes(constant) || constant.isInt() ||
         constant.isUnsigned() || constant.isDouble() || constant.isBool() ||
         constant.isComplexDouble();
}

void append_call(std::string& out, std::string_view function, std::string_view argument) {
  out.append(function).append("(");
  append_quoted(out, argument);
  out += ')';
}

void append_integer(std::string& out, int64_t number, const c10::Type* type) {
  if (type != nullptr) {
    auto [family, name] = name_of({without_optional(*type).kind(), number});
    if (!name.empty()) {
      out.append(family).append(".").append(name);
      return;
    }
  }
  append_int(out, number);
}

void append_generator(std::string& out, const at::Generator& generator) {
  if (generator.defined() &&
      default_generator(generator.device().str()).isSameIdentity(generator)) {
    append_call(out, "generator", generator.device().str());
  } else {
    append_call(out, "opaque", "Generator");
  }
}

const c10::Type* element_type(const c10::Type* type) {
  if (type == nullptr) return nullptr;
  const auto* list = without_optional(*type).castRaw<c10::ListType>();
  return list == nullptr ? nullptr : list->getElementType().get();
}

void append_list(std::string& out, const c10::IValue& list, const c10::Type* type) {
  const c10::Type* element = element_type(type);
  const char* separator = "[";
  for (const c10::IValue& item : list.toListRef()) {
    out += separator;
    append_constant(out, item, element);
    separator = ", ";
  }
  out += list.toListRef().empty() ? "[]" : "]";
}

c10::IValue coerce_list(const c10::IValue& list, const c10::TypePtr& element) {
  const auto items = list.toListRef();
  const bool is_of_sizes = std::any_of(items.begin(), items.end(), is_size);
  c10::impl::GenericList typed(is_of_sizes ? c10::TypePtr(c10::SymIntType::get())
                                           : stored_type(element));
  typed.reserve(items.size());
  for (const c10::IValue& item : items) typed.push_back(coerce_constant(item, element));
  return typed;
}

bool accepts_list(const c10::Type& element, const c10::IValue& constant) {
  if (!constant.isList()) return false;
  const c10::TypePtr held = constant.toList().elementType();
  if (stored_kind(*held) != stored_kind(element)) return false;
  for (const c10::IValue& item : constant.toListRef()) {
    if (!accepts_constant(element, item)) return false;
  }
  return true;
}

}  // namespace

c10::IValue OpaqueConstant::make(std::string_view function, std::string_view argument) {
  std::string text;
  append_call(text, function, argument);
  return c10::IValue::make_capsule(c10::make_intrusive<OpaqueConstant>(std::move(text)));
}

const OpaqueConstant* OpaqueConstant::in(const c10::IValue& constant) {
  if (!constant.isCapsule()) return nullptr;
  return dynamic_cast<const OpaqueConstant*>(constant.toCapsule().get());
}

c10::intrusive_ptr<torch::CustomClassHolder> object_in(const c10::IValue& constant) {
  if (!constant.isObject() || !constant.isCustomClass()) return nullptr;
  return constant.toObjectRef().getSlot(0).toCapsule();
}

c10::IValue default_generator(const std::string& device) {
  try {
    return at::globalContext().defaultGenerator(at::Device(device));
  } catch (const c10::Error&) {
    return OpaqueConstant::make("generator", device);
  }
}

const c10::Type& without_optional(const c10::Type& type) {
  const auto* optional = type.castRaw<c10::OptionalType>();
  return optional == nullptr ? type : *optional->getElementType();
}

bool is_tensor_type(const c10::Type& type) {
  return without_optional(type).kind() == TypeKind::TensorType;
}

bool is_tensor_list_type(const c10::Type& type) {
  const auto* list = without_optional(type).castRaw<c10::ListType>();
  return list != nullptr && is_tensor_type(*list->getElementType());
}

void append_constant(std::string& out, const c10::IValue& constant, const c10::Type* type) {
  if (constant.isNone() || (constant.isTensor() && !constant.toTensor().defined())) {
    out += "none";
  } else if (constant.isInt()) {
    append_integer(out, constant.toInt(), type);
  } else if (is_size(constant)) {
    append_call(out, "size", SizeNode::in(constant.toSymInt())->expression().str());
  } else if (is_number_of_sizes(constant)) {
    append_call(out, "real", FloatNode::in(constant.toSymFloat())->expression().str());
  } else if (constant.isUnsigned()) {
    out += std::to_string(constant.toUInt());
  } else if (constant.isBool()) {
    out += constant.toBool() ? "true" : "false";
  } else if (constant.isDouble()) {
    append_float(out, constant.toDouble());
  } else if (constant.isComplexDouble()) {
    const c10::complex<double> number = constant.toComplexDouble();
    out += "complex(";
    append_float(out, number.real());
    out += ", ";
    append_float(out, number.imag());
    out += ')';
  } else if (constant.isString()) {
    append_quoted(out, constant.toStringRef());
  } else if (constant.isDevice()) {
    append_call(out, "device", constant.toDevice().str());
  } else if (constant.isList()) {
    append_list(out, constant, type);
  } else if (constant.isGenerator()) {
    append_generator(out, constant.toGenerator());
  } else if (const OpaqueConstant* opaque = OpaqueConstant::in(constant)) {
    out += opaque->text;
  } else {
    append_call(out, "opaque", constant.tagKind());
  }
}

c10::IValue coerce_constant(c10::IValue constant, const c10::TypePtr& type) {
  switch (stored_kind(*type)) {
    case TypeKind::OptionalType:
      if (constant.isNone()) return constant;
      return coerce_constant(std::move(constant),
                             type->castRaw<c10::OptionalType>()->getElementType());
    case TypeKind::FloatType:
      return constant.isInt() ? c10::IValue(static_cast<double>(constant.toInt())) : constant;
    case TypeKind::ComplexType:
      if (constant.isInt()) return c10::complex<double>(static_cast<double>(constant.toInt()), 0);
      if (constant.isDouble()) return c10::complex<double>(constant.toDouble(), 0);
      return constant;
    case TypeKind::ListType:
      if (!constant.isList()) return constant;
      return coerce_list(constant, type->castRaw<c10::ListType>()->getElementType());
    default:
      return constant;
  }
}

bool accepts_constant(const c10::Type& type, const c10::IValue& constant) {
  if (OpaqueConstant::in(constant) != nullptr) return true;
  switch (stored_kind(type)) {
    case TypeKind::OptionalType:
      return constant.isNone() || accepts_constant(without_optional(type), constant);
    case TypeKind::TensorType:
      // A tensor with data is an input of the graph, never a constant: its text would lose the
      // data.
      return constant.isNone() || is_number(constant);
    case TypeKind::NumberType:
      return is_number(constant);
    case TypeKind::IntType:
      return constant.isInt() || is_size(constant);
    case TypeKind::FloatType:
      return constant.isDouble();
    case TypeKind::BoolType:
      return constant.isBool();
    case TypeKind::ComplexType:
      return constant.isComplexDouble();
    case TypeKind::StringType:
      return constant.isString();
    case TypeKind::DeviceObjType:
      return constant.isDevice();
    case TypeKind::GeneratorType:
      return constant.isGenerator();
    case TypeKind::ListType:
      return accepts_list(*type.castRaw<c10::ListType>()->getElementType(), constant);
    default:
      return constant.type()->isSubtypeOf(type);
  }
}

}  // namespace ahead
