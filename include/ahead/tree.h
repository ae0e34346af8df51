#pragma once

/// Trees: what a traced function may take and return.
///
/// A tree is an `at::Tensor`, `bool`, integer, `float`, `double`, `at::Scalar`, `at::Device`,
/// `std::string`, enumerator or `c10::IValue`; a `std::optional`, `vector`, `array`, `pair`,
/// `tuple`, `map` or `unordered_map` (with `std::string` keys) of trees; or a struct of trees that
/// was announced with AHEAD_TREE.

#include <utility>
#include <vector>

#include "ahead/detail/tree_types.h"
#include "ahead/detail/tree_walk.h"
#include "ahead/tree_spec.h"

/// Announces a struct as a tree: `AHEAD_TREE(Batch, images, labels)` names all its fields, at most
/// 32. Stands at namespace scope, in the namespace of the struct or in the global one.
#define AHEAD_TREE(Type, ...)                                                          \
  [[maybe_unused]] constexpr auto ahead_tree_fields(const Type*, ::ahead_tree_tag) {   \
    return ::ahead::detail::make_struct(#Type AHEAD_DETAIL_FIELDS(Type, __VA_ARGS__)); \
  }

namespace ahead {

/// Whether a type is a tree. The fields of an announced struct are checked where it is used.
template <class T>
concept TreeType = detail::is_tree<T>;

/// Takes a tree apart. It does not compile for a type that is no tree.
template <class T>
FlatTree flatten(const T& tree) {
  detail::TreeWriter writer;
  detail::walk(tree, writer);
  return std::move(writer).finish();
}

/// Copies the prototype with other tensors: its i-th defined tensor becomes `leaves[i]`. Throws
/// UserError unless there is one leaf for each.
template <class T>
T unflatten(const T& prototype, const std::vector<at::Tensor>& leaves) {
  T tree = prototype;
  detail::LeafReplacer replacer(leaves);
  detail::walk(tree, replacer);
  replacer.finish();
  return tree;
}

}  // namespace ahead
