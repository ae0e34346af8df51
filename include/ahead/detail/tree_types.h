#pragma once

/// Which types are trees, and how AHEAD_TREE announces a struct.

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <array>
#include <concepts>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

/// Lets argument-dependent lookup find announcements in the global namespace.
struct ahead_tree_tag {};  // NOLINT(readability-identifier-naming): in everybody's namespace

namespace ahead::detail {

template <class Member>
struct Field {
  std::string_view name;
  Member member;
};

/// An announced struct: its name and its fields, in order.
template <class... Members>
struct Struct {
  std::string_view name;
  std::tuple<Field<Members>...> fields;
};

template <class Member>
constexpr Field<Member> make_field(std::string_view name, Member member) {
  return {name, member};
}

template <class... Members>
constexpr Struct<Members...> make_struct(std::string_view name, Field<Members>... fields) {
  return {name, std::tuple<Field<Members>...>(fields...)};
}

template <class T>
inline constexpr bool is_announced = requires(const T* tree) {
  ahead_tree_fields(tree, ::ahead_tree_tag{});
};

/// A value that is specialised on.
template <class T>
inline constexpr bool is_constant =
    std::integral<T> || std::same_as<T, float> || std::same_as<T, double> ||
    std::same_as<T, at::Scalar> || std::same_as<T, at::Device> || std::same_as<T, std::string>;

template <class T>
inline constexpr bool is_tree = is_constant<T> || std::is_enum_v<T> || is_announced<T>;
template <>
inline constexpr bool is_tree<at::Tensor> = true;
template <>
inline constexpr bool is_tree<c10::IValue> = true;
template <class T>
inline constexpr bool is_tree<const T> = is_tree<T>;

/// The families of templates that are trees if their arguments are.
template <class T>
inline constexpr bool is_optional = false;
template <class T>
inline constexpr bool is_optional<std::optional<T>> = true;
template <class T>
inline constexpr bool is_tree<std::optional<T>> = is_tree<T>;

template <class T>
inline constexpr bool is_list = false;
template <class T, class Allocator>
inline constexpr bool is_list<std::vector<T, Allocator>> = true;
template <class T, size_t size>
inline constexpr bool is_list<std::array<T, size>> = true;
template <class T, class Allocator>
inline constexpr bool is_tree<std::vector<T, Allocator>> = is_tree<T>;
template <class T, size_t size>
inline constexpr bool is_tree<std::array<T, size>> = is_tree<T>;

template <class T>
inline constexpr bool is_tuple = false;
template <class First, class Second>
inline constexpr bool is_tuple<std::pair<First, Second>> = true;
template <class... T>
inline constexpr bool is_tuple<std::tuple<T...>> = true;
template <class First, class Second>
inline constexpr bool is_tree<std::pair<First, Second>> = is_tree<First>&& is_tree<Second>;
template <class... T>
inline constexpr bool is_tree<std::tuple<T...>> = (is_tree<T> && ...);

template <class T>
inline constexpr bool is_map = false;
template <class T, class... Rest>
inline constexpr bool is_map<std::map<std::string, T, Rest...>> = true;
template <class T, class... Rest>
inline constexpr bool is_map<std::unordered_map<std::string, T, Rest...>> = true;
template <class T, class... Rest>
inline constexpr bool is_tree<std::map<std::string, T, Rest...>> = is_tree<T>;
template <class T, class... Rest>
inline constexpr bool is_tree<std::unordered_map<std::string, T, Rest...>> = is_tree<T>;

/// Initialises a field of any type, but not a whole `Aggregate`.
template <class Aggregate>
struct AnyField {
  template <class T>
  requires(!std::same_as<T, Aggregate>) constexpr operator T() const noexcept;
};

template <class T, size_t... i>
constexpr bool has_fields(std::index_sequence<i...>) {
  return requires {
    T{(static_cast<void>(i), AnyField<T>{})...};
  };
}

/// False if the aggregate has more fields than it was announced with.
template <class T, class... Members>
constexpr bool lists_all_fields(const Struct<Members...>&) {
  if constexpr (std::is_aggregate_v<T>) {
    return !has_fields<T>(std::make_index_sequence<sizeof...(Members) + 1>());
  }
  return true;
}

}  // namespace ahead::detail

/// AHEAD_DETAIL_FIELDS(Type, a, b) is `, make_field("a", &Type::a), make_field("b", &Type::b)`.
#define AHEAD_DETAIL_FIELDS(Type, ...) \
  __VA_OPT__(AHEAD_DETAIL_RESCAN(AHEAD_DETAIL_FIELD(Type, __VA_ARGS__)))
#define AHEAD_DETAIL_FIELD(Type, name, ...)         \
  , ::ahead::detail::make_field(#name, &Type::name) \
        __VA_OPT__(AHEAD_DETAIL_NEXT_FIELD AHEAD_DETAIL_PARENS(Type, __VA_ARGS__))
#define AHEAD_DETAIL_NEXT_FIELD() AHEAD_DETAIL_FIELD
#define AHEAD_DETAIL_PARENS ()
/// Each scan of the preprocessor unfolds one field; these are 64.
#define AHEAD_DETAIL_RESCAN(...) \
  AHEAD_DETAIL_RESCAN_16(        \
      AHEAD_DETAIL_RESCAN_16(AHEAD_DETAIL_RESCAN_16(AHEAD_DETAIL_RESCAN_16(__VA_ARGS__))))
#define AHEAD_DETAIL_RESCAN_16(...) \
  AHEAD_DETAIL_RESCAN_4(            \
      AHEAD_DETAIL_RESCAN_4(AHEAD_DETAIL_RESCAN_4(AHEAD_DETAIL_RESCAN_4(__VA_ARGS__))))
#define AHEAD_DETAIL_RESCAN_4(...) \
  AHEAD_DETAIL_RESCAN_1(           \
      AHEAD_DETAIL_RESCAN_1(AHEAD_DETAIL_RESCAN_1(AHEAD_DETAIL_RESCAN_1(__VA_ARGS__))))
#define AHEAD_DETAIL_RESCAN_1(...) __VA_ARGS__
