#include "observe/recorder/seen_object.h"

#include "ahead/errors.h"
#include "ir/constants.h"

namespace ahead::observe {

SeenObject::SeenObject(const c10::IValue& value) : type_(value.type()), object_(object_in(value)) {}

c10::IValue SeenObject::instead_of(const c10::IValue& value) {
  if (object_in(value) == nullptr) return value;
  return c10::IValue::make_capsule(c10::make_intrusive<SeenObject>(value));
}

const SeenObject* SeenObject::in(const c10::IValue& recorded) {
  if (!recorded.isCapsule()) return nullptr;
  return dynamic_cast<const SeenObject*>(recorded.toCapsule().get());
}

c10::IValue SeenObject::value() const {
  auto object = object_.lock();
  if (object == nullptr) {
    throw Unsupported("compile", str() +
                                     ": the function gives it to an operator, and it is gone when "
                                     "the call ends. Keep it outside.");
  }
  auto holder =
      c10::ivalue::Object::create(c10::StrongTypePtr(nullptr, type_->expect<c10::ClassType>()), 1);
  holder->setSlot(0, c10::IValue::make_capsule(std::move(object)));
  return holder;
}

std::string SeenObject::str() const {
  return "an object of class " + type_->expectRef<c10::ClassType>().name()->qualifiedName();
}

}  // namespace ahead::observe
