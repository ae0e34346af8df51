#pragma once

/// Members of modules on which calls depend. A compiled module notices at once if a member of its
/// own changes, but numbers inside of submodules only when it is observed again; announced ones are
/// compared in every call.

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <functional>
#include <optional>
#include <tuple>
#include <type_traits>
#include <typeinfo>
#include <vector>

#include "ahead/detail/tree_types.h"
#include "ahead/export.h"

/// Announces members of a module that its forward reads or replaces:
/// `AHEAD_STATE(NetImpl, temperature, step, hidden)`, at most 32. Numbers, truth values and
/// enumerators among them decide which program a call runs, wherever in a compiled or watched
/// module (Options::watch) such a module is. Tensors among them are arguments of programs, and what
/// calls assign to them is assigned to them, as if they were members of the compiled module itself.
/// Stands at namespace scope, before the module is compiled.
#define AHEAD_STATE(Type, ...)                                                            \
  [[maybe_unused]] static const bool AHEAD_DETAIL_STATE_NAME(ahead_state_, __COUNTER__) = \
      ::ahead::detail::announce_members<Type>(                                            \
          ::ahead::detail::make_struct(#Type AHEAD_DETAIL_FIELDS(Type, __VA_ARGS__)));
#define AHEAD_DETAIL_STATE_NAME(stem, number) AHEAD_DETAIL_STATE_JOIN(stem, number)
#define AHEAD_DETAIL_STATE_JOIN(stem, number) stem##number

namespace torch::nn {
class Module;
}

namespace ahead::detail {

/// A member that a module announced.
struct AnnouncedMember {
  const void* address;
  size_t size;  ///< of a number at most that of a word
  bool has_tensor = false;
};

/// Adds the members that a module announced, if it is of the class.
using FindMembers = std::function<void(const torch::nn::Module&, std::vector<AnnouncedMember>&)>;

/// Remembers how members are found in modules of a class. Returns true.
AHEAD_API bool announce_state(const std::type_info& type, FindMembers find);

template <class T>
inline constexpr bool is_tensor_member =
    std::is_same_v<T, at::Tensor> || std::is_same_v<T, std::optional<at::Tensor>>;

template <class Member>
void add_member(const Member& member, std::vector<AnnouncedMember>& members) {
  static_assert(std::is_arithmetic_v<Member> || std::is_enum_v<Member> || is_tensor_member<Member>,
                "AHEAD_STATE takes numbers, truth values, enumerators and tensors");
  members.push_back({&member, sizeof(Member), is_tensor_member<Member>});
}

// The base is a parameter only because it is not defined here.
template <class M, class Fields, class Base = torch::nn::Module>
bool announce_members(Fields fields) {
  return announce_state(
      typeid(M), [fields](const Base& module, std::vector<AnnouncedMember>& members) {
        const M* found = dynamic_cast<const M*>(&module);
        if (found == nullptr) return;
        std::apply([&](const auto&... field) { (add_member(found->*field.member, members), ...); },
                   fields.fields);
      });
}

}  // namespace ahead::detail
