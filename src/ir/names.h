#pragma once

#include <ATen/core/jit_type_base.h>
#include <c10/util/ArrayRef.h>

#include <optional>
#include <string_view>
#include <utility>

#include "ahead/graph.h"

/// The words of the graph's text form. Printer, parser and verifier share these tables.
namespace ahead {

/// `f32`, `i64`, …, or LibTorch's own name for the rarer ones; empty for a number that is no dtype.
std::string_view dtype_name(at::ScalarType dtype);
/// The dtype that dtype_name() calls by this name, if there is one.
std::optional<at::ScalarType> find_dtype(std::string_view name);

/// A constant that is a number to the dispatcher and a word to people: `dtype.f32`,
/// `layout.strided`, `format.channels_last`.
struct NamedConstant {
  c10::TypeKind kind;
  int64_t number;
};
/// The two halves of the word for a named constant; empty halves if there is no word.
std::pair<std::string_view, std::string_view> name_of(NamedConstant constant);
/// The constant that this word names, if there is one.
std::optional<NamedConstant> find_named_constant(std::string_view word);

/// One kind of slot: its name in the text form, and where a slot of this kind may stand.
struct SlotFacts {
  enum class Names : uint8_t { nothing, input_position, output_position };

  Slot::Kind kind;
  std::string_view name;
  bool on_inputs;
  bool on_outputs;
  Names index_names;  ///< the positions that the slot's index refers to
};
/// The facts about a kind of slot. Throws InternalError for a number that is no kind.
const SlotFacts& facts(Slot::Kind kind);
/// The facts about the kind of this name; null if there is none.
const SlotFacts* find_slot_kind(std::string_view name);

/// A tag and its name in the text form, without the `!`.
struct TagName {
  Tag tag;
  std::string_view name;
};
/// All tags, in the order in which they are printed.
c10::ArrayRef<TagName> tag_names();
/// The tag of this name; null if there is none.
const TagName* find_tag(std::string_view name);
/// The word that marks a node of the backward phase; it stands among the tags.
inline constexpr std::string_view backward_name = "backward";

}  // namespace ahead
