#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/util/TypeIndex.h>

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "ahead/detail/tree_types.h"
#include "ahead/export.h"
#include "ahead/tree_spec.h"

namespace ahead::detail {

/// Writes down a tree that is walked: its structure and its defined tensors.
class AHEAD_API TreeWriter {
 public:
  void tensor(const at::Tensor& tensor);
  void ivalue(const c10::IValue& value);
  template <class T>
  void constant(const T& value) {
    if constexpr (std::same_as<T, bool> || !std::integral<T>) {
      add({Kind::Constant, 0, {}, c10::IValue(value)});
    } else if constexpr (std::is_signed_v<T>) {
      add({Kind::Constant, 0, {}, c10::IValue(static_cast<int64_t>(value))});
    } else {
      add({Kind::Constant, 0, {}, c10::IValue(static_cast<uint64_t>(value))});
    }
  }
  void enumerator(std::string_view type, int64_t value) { add({Kind::Enum, 0, type, value}); }
  void none() { add({Kind::None, 0, {}, {}}); }
  void some() { add({Kind::Some, 1, {}, {}}); }
  void tuple(size_t size) { add({Kind::Tuple, size, {}, {}}); }
  void list(size_t size) { add({Kind::List, size, {}, {}}); }
  void dict(size_t size) { add({Kind::Dict, size, {}, {}}); }
  void structure(std::string_view name, size_t size) { add({Kind::Struct, size, name, {}}); }
  void field(std::string_view name) { add({Kind::Field, 1, name, {}}); }

  FlatTree finish() && { return std::move(flat_); }

 private:
  using Kind = TreeSpec::Kind;
  void add(TreeSpec::Item item) { flat_.spec.items_.push_back(std::move(item)); }

  FlatTree flat_;
};

/// Puts leaves in place of the defined tensors of a tree that is walked.
class AHEAD_API LeafReplacer {
 public:
  explicit LeafReplacer(const std::vector<at::Tensor>& leaves) : leaves_(leaves) {}

  void tensor(at::Tensor& tensor);
  /// Collections are copied, so that a write to them does not reach the original.
  void ivalue(c10::IValue& value);
  template <class T>
  void tensor(const T&) {
    refuse_const<T>();
  }
  template <class T>
  void ivalue(const T&) {
    refuse_const<T>();
  }
  template <class T>
  void constant(const T&) {}
  void enumerator(std::string_view, int64_t) {}
  void none() {}
  void some() {}
  void tuple(size_t) {}
  void list(size_t) {}
  void dict(size_t) {}
  void structure(std::string_view, size_t) {}
  void field(std::string_view) {}

  /// Throws UserError if there were more or fewer leaves than defined tensors.
  void finish() const;

 private:
  template <class T>
  static void refuse_const() {
    static_assert(!is_tree<T>,
                  "AHEAD_TREE: a const field cannot hold a tensor, since tracing puts another one "
                  "in its place. Make the field non-const.");
  }

  const std::vector<at::Tensor>& leaves_;
  size_t num_tensors_ = 0;
};

template <class T, class Visitor>
void walk(T& tree, Visitor& visitor);

template <class Map, class Visitor>
void walk_map(Map& map, Visitor& visitor) {
  std::vector<decltype(&*map.begin())> entries;
  entries.reserve(map.size());
  for (auto& entry : map) entries.push_back(&entry);
  std::sort(entries.begin(), entries.end(),
            [](const auto* a, const auto* b) { return a->first < b->first; });
  visitor.dict(map.size());
  for (auto* entry : entries) {
    visitor.constant(entry->first);
    detail::walk(entry->second, visitor);
  }
}

template <class T, class Visitor, size_t... i>
void walk_tuple(T& tree, Visitor& visitor, std::index_sequence<i...>) {
  visitor.tuple(sizeof...(i));
  // The type is spelled out, since std::get would hide that an element is a reference.
  (detail::walk<std::tuple_element_t<i, T>>(std::get<i>(tree), visitor), ...);
}

template <class T, class Visitor>
void walk_struct(T& tree, Visitor& visitor) {
  using Bare = std::remove_const_t<T>;
  constexpr auto announced =
      ahead_tree_fields(static_cast<const Bare*>(nullptr), ::ahead_tree_tag{});
  static_assert(
      lists_all_fields<Bare>(announced),
      "AHEAD_TREE does not list every field of the struct. A field that is left out would "
      "be neither traced nor compared between calls.");
  visitor.structure(announced.name, std::tuple_size_v<decltype(announced.fields)>);
  auto walk_field = [&](const auto& field) {
    visitor.field(field.name);
    detail::walk(tree.*field.member, visitor);
  };
  std::apply([&](const auto&... field) { (walk_field(field), ...); }, announced.fields);
}

/// Shows every part of a tree to the visitor, in order. Through a reference to non-const, the
/// visitor may replace tensors and IValues.
template <class T, class Visitor>
void walk(T& tree, Visitor& visitor) {
  using Bare = std::remove_const_t<T>;
  if constexpr (std::same_as<Bare, at::Tensor>) {
    visitor.tensor(tree);
  } else if constexpr (std::same_as<Bare, c10::IValue>) {
    visitor.ivalue(tree);
  } else if constexpr (is_constant<Bare>) {
    visitor.constant(tree);
  } else if constexpr (std::is_enum_v<Bare>) {
    visitor.enumerator(c10::util::get_fully_qualified_type_name<Bare>(),
                       static_cast<int64_t>(tree));
  } else if constexpr (is_optional<Bare>) {
    using Content = typename Bare::value_type;
    if (!tree.has_value()) return visitor.none();
    if (is_optional<Content> || std::same_as<Content, c10::IValue>) visitor.some();
    detail::walk(*tree, visitor);
  } else if constexpr (std::same_as<Bare, std::vector<bool>>) {
    visitor.list(tree.size());
    for (const bool element : tree) visitor.constant(element);
  } else if constexpr (is_list<Bare>) {
    visitor.list(tree.size());
    for (auto& element : tree) detail::walk(element, visitor);
  } else if constexpr (is_tuple<Bare>) {
    walk_tuple(tree, visitor, std::make_index_sequence<std::tuple_size_v<Bare>>());
  } else if constexpr (is_map<Bare>) {
    walk_map(tree, visitor);
  } else {
    static_assert(
        is_announced<Bare>,
        "This type cannot be part of an argument or a result (see ahead/tree.h). If it is "
        "a struct, announce it: AHEAD_TREE(Type, field, ...), at namespace scope.");
    if constexpr (is_announced<Bare>) walk_struct(tree, visitor);
  }
}

}  // namespace ahead::detail
