#include "ahead/tree.h"

#include <ATen/core/jit_type.h>

#include "ahead/errors.h"
#include "base/hash.h"
#include "base/same_bits.h"
#include "base/text.h"
#include "ir/constants.h"

namespace ahead {
namespace {

/// Whether a program specialised on one constant is right for the other.
bool same_constant(const c10::IValue& a, const c10::IValue& b) {
  if (a.isDouble() && b.isDouble()) return same_bits(a.toDouble(), b.toDouble());
  if (a.isComplexDouble() && b.isComplexDouble()) {
    const c10::complex<double> left = a.toComplexDouble(), right = b.toComplexDouble();
    return same_bits(left.real(), right.real()) && same_bits(left.imag(), right.imag());
  }
  if (a.isUnsigned() && b.isUnsigned()) return a.toUInt() == b.toUInt();
  if (a.isDevice() && b.isDevice()) return a.toDevice() == b.toDevice();
  if (const auto object = object_in(a)) return object == object_in(b);
  return a.isSameIdentity(b);
}

uint64_t hash_constant(const c10::IValue& constant, uint64_t seed) {
  if (constant.isInt()) return hash_combine(seed, static_cast<uint64_t>(constant.toInt()));
  std::string text;
  append_constant(text, constant, nullptr);
  return hash_bytes(text, seed);
}

std::string tensors(size_t count) {
  return std::to_string(count) + (count == 1 ? " tensor" : " tensors");
}

bool is_named(const c10::ivalue::Tuple& tuple) {
  return tuple.type()->schema() != nullptr;
}

}  // namespace

bool TreeSpec::operator==(const TreeSpec& other) const {
  auto same = [](const Item& a, const Item& b) {
    return a.kind == b.kind && a.size == b.size && a.name == b.name &&
           same_constant(a.value, b.value);
  };
  return std::equal(items_.begin(), items_.end(), other.items_.begin(), other.items_.end(), same);
}

bool TreeSpec::is_like(const TreeSpec& other) const {
  auto alike = [](const Item& a, const Item& b) {
    const bool are_reals = a.value.isDouble() && b.value.isDouble() && a.kind == Kind::Constant;
    return a.kind == b.kind && a.size == b.size && a.name == b.name &&
           (are_reals || same_constant(a.value, b.value));
  };
  return std::equal(items_.begin(), items_.end(), other.items_.begin(), other.items_.end(), alike);
}

std::vector<double> TreeSpec::reals() const {
  std::vector<double> numbers;
  for (const Item& item : items_) {
    if (item.kind == Kind::Constant && item.value.isDouble())
      numbers.push_back(item.value.toDouble());
  }
  return numbers;
}

uint64_t TreeSpec::hash() const {
  uint64_t hash = items_.size();
  for (const Item& item : items_) {
    hash = hash_combine(hash, static_cast<uint64_t>(item.kind));
    hash = hash_combine(hash, item.size);
    hash = hash_bytes(item.name, hash);
    hash = hash_constant(item.value, hash);
  }
  return hash;
}

std::string TreeSpec::str() const {
  std::string text;
  if (!items_.empty()) print(text, 0);
  return text;
}

/// Appends the tree that begins at a position and returns where the next one begins.
size_t TreeSpec::print(std::string& out, size_t position) const {
  const Item& item = items_[position];
  switch (item.kind) {
    case Kind::Tensor:
      out += "Tensor";
      break;
    case Kind::Undefined:
      out += "undefined";
      break;
    case Kind::None:
      out += "none";
      break;
    case Kind::Some:
      return print_children(out.append("some"), position, "()");
    case Kind::Constant:
      append_constant(out, item.value, nullptr);
      break;
    case Kind::Enum:
      out.append(item.name).append("(");
      append_constant(out, item.value, nullptr);
      out += ')';
      break;
    case Kind::Tuple:
      return print_children(out, position, "()");
    case Kind::List:
      return print_children(out, position, "[]");
    case Kind::Dict:
      return print_children(out, position, "{}");
    case Kind::Struct:
      return print_children(out.append(item.name), position, "{}");
    case Kind::Field:
      out.append(item.name).append(": ");
      return print(out, position + 1);
  }
  return position + 1;
}

size_t TreeSpec::print_children(std::string& out, size_t position, const char* brackets) const {
  const Item& parent = items_[position];
  out += brackets[0];
  size_t next = position + 1;
  for (size_t i = 0; i < parent.size; ++i) {
    if (i != 0) out += ", ";
    if (parent.kind == Kind::Dict) {
      next = print(out, next);
      out += ": ";
    }
    next = print(out, next);
  }
  out += brackets[1];
  return next;
}

namespace detail {

void TreeWriter::tensor(const at::Tensor& tensor) {
  if (!tensor.defined()) return add({Kind::Undefined, 0, {}, {}});
  add({Kind::Tensor, 0, {}, {}});
  flat_.leaves.push_back(tensor);
  ++flat_.spec.num_tensors_;
}

void TreeWriter::ivalue(const c10::IValue& value) {
  if (value.isTensor()) {
    tensor(value.toTensor());
  } else if (value.isNone()) {
    none();
  } else if (value.isTuple()) {
    const c10::ivalue::Tuple& elements = value.toTupleRef();
    const c10::IValue type = is_named(elements) ? elements.type()->repr_str() : c10::IValue();
    add({Kind::Tuple, elements.elements().size(), {}, type});
    for (const c10::IValue& element : elements.elements()) ivalue(element);
  } else if (value.isList()) {
    add({Kind::List, value.toListRef().size(), {}, value.toList().elementType()->repr_str()});
    for (const c10::IValue& element : value.toListRef()) ivalue(element);
  } else if (value.isGenericDict()) {
    const auto entries = value.toGenericDict();
    add({Kind::Dict,
         entries.size(),
         {},
         entries.keyType()->repr_str() + ", " + entries.valueType()->repr_str()});
    for (const auto& entry : entries) {
      ivalue(entry.key());
      ivalue(entry.value());
    }
  } else {
    constant(value);
  }
}

void LeafReplacer::tensor(at::Tensor& tensor) {
  if (!tensor.defined()) return;
  if (num_tensors_ < leaves_.size()) tensor = leaves_[num_tensors_];
  ++num_tensors_;
}

void LeafReplacer::ivalue(c10::IValue& value) {
  if (value.isTensor()) {
    tensor(value.toTensor());
  } else if (value.isTuple()) {
    const auto original = value.toTuple();
    std::vector<c10::IValue> elements = original->elements().vec();
    for (c10::IValue& element : elements) ivalue(element);
    value = is_named(*original)
                ? c10::ivalue::Tuple::createNamed(std::move(elements), original->type())
                : c10::ivalue::Tuple::create(std::move(elements));
  } else if (value.isList()) {
    c10::List<c10::IValue> elements = value.toList().copy();
    for (size_t i = 0; i < elements.size(); ++i) {
      c10::IValue element = elements.get(i);
      ivalue(element);
      elements.set(i, std::move(element));
    }
    value = elements;
  } else if (value.isGenericDict()) {
    const auto original = value.toGenericDict();
    c10::impl::GenericDict entries(original.keyType(), original.valueType());
    for (const auto& entry : original) {
      c10::IValue key = entry.key(), content = entry.value();
      ivalue(key);
      ivalue(content);
      entries.insert(std::move(key), std::move(content));
    }
    value = entries;
  }
}

void LeafReplacer::finish() const {
  if (num_tensors_ == leaves_.size()) return;
  throw UserError("tree", "unflatten: the tree holds " + tensors(num_tensors_) + ", but " +
                              tensors(leaves_.size()) +
                              " came to take their places. Pass one leaf for each defined tensor.");
}

}  // namespace detail
}  // namespace ahead
