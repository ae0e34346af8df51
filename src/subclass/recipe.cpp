#include "subclass/recipe.h"

#include <sstream>

#include "ahead/tree.h"
#include "base/hash.h"
#include "tensors/wrapper_impl.h"

namespace ahead::subclass {
namespace {

bool has_look(const at::Tensor& tensor, const WrapperLook& look) {
  return tensor.sizes() == at::IntArrayRef(look.sizes) &&
         tensor.strides() == at::IntArrayRef(look.strides) &&
         tensor.storage_offset() == look.offset && tensor.scalar_type() == look.dtype &&
         tensor.device() == look.device;
}

}  // namespace

bool is_same_metadata(const c10::IValue& a, const c10::IValue& b) {
  if (a.isNone() || b.isNone()) return a.isNone() && b.isNone();
  return ahead::flatten(a).spec == ahead::flatten(b).spec;
}

Recipe Recipe::of(const at::Tensor& tensor) {
  Recipe recipe{.look = WrapperLook::of(tensor)};
  if (!tensors::is_wrapper(tensor)) return recipe;
  const WrapperTensor& inside = *tensors::as_wrapper(tensor).inside();
  recipe.type = &inside.wrapper_class();
  WrapperParts parts = inside.flatten();
  recipe.metadata = std::move(parts.metadata);
  for (const at::Tensor& inner : parts.inner) recipe.inner.push_back(of(inner));
  return recipe;
}

size_t Recipe::num_plain() const {
  if (is_plain()) return 1;
  size_t count = 0;
  for (const Recipe& part : inner) count += part.num_plain();
  return count;
}

bool Recipe::holds(const at::Tensor& tensor) const {
  if (is_plain() || !tensors::is_wrapper(tensor)) return is_plain() && !tensors::is_wrapper(tensor);
  const WrapperTensor& inside = *tensors::as_wrapper(tensor).inside();
  if (*inside.wrapper_class().type != *type->type || !has_look(tensor, look)) return false;
  const WrapperParts parts = inside.flatten();
  if (parts.inner.size() != inner.size() || !is_same_metadata(parts.metadata, metadata))
    return false;
  for (size_t i = 0; i < inner.size(); ++i) {
    if (!inner[i].holds(parts.inner[i])) return false;
  }
  return true;
}

bool Recipe::is_like(const Recipe& other) const {
  if (is_plain() || other.is_plain()) return is_plain() && other.is_plain();
  if (*type->type != *other.type->type || inner.size() != other.inner.size() ||
      !is_same_metadata(metadata, other.metadata))
    return false;
  for (size_t i = 0; i < inner.size(); ++i) {
    if (!inner[i].is_like(other.inner[i])) return false;
  }
  return true;
}

std::string Recipe::str() const {
  if (is_plain()) return "Tensor";
  std::string text = type->name + "(";
  for (size_t i = 0; i < inner.size(); ++i) text += (i == 0 ? "" : ", ") + inner[i].str();
  if (!metadata.isNone()) text += "; " + ahead::flatten(metadata).spec.str();
  return text + ")";
}

uint64_t hash_of_classes(const at::Tensor& tensor) {
  if (!tensors::is_wrapper(tensor)) return 1;
  const WrapperTensor& inside = *tensors::as_wrapper(tensor).inside();
  uint64_t hash = hash_combine(inside.wrapper_class().type->hash_code(), 2);
  for (const at::Tensor& inner : inside.flatten().inner)
    hash = hash_combine(hash, hash_of_classes(inner));
  return hash;
}

void append_metadata(const Recipe& recipe, std::vector<TreeSpec>& metadata) {
  if (!recipe.metadata.isNone()) metadata.push_back(ahead::flatten(recipe.metadata).spec);
  for (const Recipe& inner : recipe.inner) append_metadata(inner, metadata);
}

void append_plain(const at::Tensor& tensor, std::vector<at::Tensor>& plain) {
  if (!tensors::is_wrapper(tensor)) return plain.push_back(tensor);
  for (const at::Tensor& inner : tensors::as_wrapper(tensor).inside()->flatten().inner)
    append_plain(inner, plain);
}

at::Tensor assemble(const Recipe& recipe, const at::Tensor*& next) {
  if (recipe.is_plain()) return *next++;
  WrapperParts parts{{}, recipe.metadata};
  for (const Recipe& inner : recipe.inner) parts.inner.push_back(assemble(inner, next));
  // A gradient may lie otherwise than the one that was expected. A wrapper that looks like its
  // first inner tensor does so again.
  const bool looks_like_first = recipe.look == recipe.inner.front().look;
  const WrapperLook look =
      looks_like_first ? WrapperLook::of(parts.inner.front()) : WrapperLook(recipe.look);
  return wrap(recipe.type->unflatten(std::move(parts)), look);
}

}  // namespace ahead::subclass
