#include "ir/names.h"

#include <c10/core/Layout.h>
#include <c10/core/MemoryFormat.h>
#include <c10/core/ScalarType.h>

#include <algorithm>
#include <array>

#include "ahead/errors.h"

namespace ahead {
namespace {

struct Word {
  int64_t number;
  std::string_view name;
};

template <class Enum>
constexpr Word word(Enum value, std::string_view name) {
  return {static_cast<int64_t>(value), name};
}

constexpr std::array short_dtypes = {
    word(at::kHalf, "f16"),         word(at::kBFloat16, "bf16"),
    word(at::kFloat, "f32"),        word(at::kDouble, "f64"),
    word(at::kChar, "i8"),          word(at::kShort, "i16"),
    word(at::kInt, "i32"),          word(at::kLong, "i64"),
    word(at::kByte, "u8"),          word(at::kUInt16, "u16"),
    word(at::kUInt32, "u32"),       word(at::kUInt64, "u64"),
    word(at::kBool, "bool"),        word(at::kComplexHalf, "c32"),
    word(at::kComplexFloat, "c64"), word(at::kComplexDouble, "c128"),
};

constexpr std::array layouts = {
    word(at::kStrided, "strided"),      word(at::kSparse, "sparse_coo"),
    word(at::kSparseCsr, "sparse_csr"), word(at::kSparseCsc, "sparse_csc"),
    word(at::kSparseBsr, "sparse_bsr"), word(at::kSparseBsc, "sparse_bsc"),
    word(at::kMkldnn, "mkldnn"),        word(at::kJagged, "jagged"),
};

constexpr std::array formats = {
    word(at::MemoryFormat::Contiguous, "contiguous"),
    word(at::MemoryFormat::Preserve, "preserve"),
    word(at::MemoryFormat::ChannelsLast, "channels_last"),
    word(at::MemoryFormat::ChannelsLast3d, "channels_last_3d"),
};

constexpr int dtype_count = static_cast<int>(at::ScalarType::NumOptions);

/// Every dtype at its own number, under our short name or else LibTorch's.
c10::ArrayRef<Word> dtypes() {
  static const auto words = [] {
    std::array<Word, dtype_count> all;
    for (int i = 0; i < dtype_count; ++i) all[i] = {i, c10::toString(at::ScalarType(i))};
    for (const Word& dtype : short_dtypes) all[dtype.number] = dtype;
    all[static_cast<int>(at::ScalarType::Undefined)].name = {};
    return all;
  }();
  return words;
}

struct Family {
  c10::TypeKind kind;
  std::string_view name;
  c10::ArrayRef<Word> words;
};

c10::ArrayRef<Family> families() {
  static const std::array all = {
      Family{c10::TypeKind::ScalarTypeType, "dtype", dtypes()},
      Family{c10::TypeKind::LayoutType, "layout", layouts},
      Family{c10::TypeKind::MemoryFormatType, "format", formats},
  };
  return all;
}

/// The first entry for which `wanted` holds, or null.
template <class Entries, class Wanted>
auto find_entry(const Entries& entries, Wanted&& wanted) -> decltype(&*std::begin(entries)) {
  auto found = std::find_if(std::begin(entries), std::end(entries), wanted);
  return found == std::end(entries) ? nullptr : &*found;
}

const Word* find_word(c10::ArrayRef<Word> words, std::string_view name) {
  return find_entry(words, [&](const Word& word) { return word.name == name && !name.empty(); });
}

using Kind = Slot::Kind;
using Names = SlotFacts::Names;

// In the order of Slot::Kind.
constexpr SlotFacts slots[] = {
    {Kind::Primal, "Primal", true, false, Names::nothing},
    {Kind::Captured, "Captured", true, false, Names::nothing},
    {Kind::Tangent, "Tangent", true, false, Names::output_position},
    {Kind::SyntheticBase, "SyntheticBase", true, false, Names::nothing},
    {Kind::Saved, "Saved", true, true, Names::nothing},
    {Kind::Seed, "Seed", true, true, Names::nothing},
    {Kind::Offset, "Offset", true, true, Names::nothing},
    {Kind::Token, "Token", true, true, Names::nothing},
    {Kind::Sizes, "Sizes", true, false, Names::nothing},
    {Kind::Output, "Output", false, true, Names::nothing},
    {Kind::MutatedInput, "MutatedInput", false, true, Names::input_position},
    {Kind::GradOf, "GradOf", false, true, Names::input_position},
    {Kind::AccumulatedGrad, "AccumulatedGrad", false, true, Names::input_position},
    {Kind::IntermediateBase, "IntermediateBase", false, true, Names::nothing},
};

constexpr TagName tags[] = {
    {Tag::NoGrad, "no_grad"},
    {Tag::Autocast, "autocast"},
    {Tag::MustBeInForward, "must_be_in_forward"},
    {Tag::MustBeInBackward, "must_be_in_backward"},
    {Tag::MustSave, "must_save"},
    {Tag::MustRecompute, "must_recompute"},
    {Tag::PreferSave, "prefer_save"},
    {Tag::PreferRecompute, "prefer_recompute"},
    {Tag::Random, "random"},
    {Tag::Effect, "effect"},
    {Tag::GradientAccumulation, "gradient_accumulation"},
};

}  // namespace

std::string_view dtype_name(at::ScalarType dtype) {
  const int number = static_cast<int>(dtype);
  return number >= 0 && number < dtype_count ? dtypes()[number].name : std::string_view();
}

std::optional<at::ScalarType> find_dtype(std::string_view name) {
  const Word* word = find_word(dtypes(), name);
  return word ? std::make_optional(at::ScalarType(word->number)) : std::nullopt;
}

std::pair<std::string_view, std::string_view> name_of(NamedConstant constant) {
  const Family* family =
      find_entry(families(), [&](const Family& family) { return family.kind == constant.kind; });
  if (family == nullptr) return {};
  const Word* word =
      find_entry(family->words, [&](const Word& word) { return word.number == constant.number; });
  if (word == nullptr || word->name.empty()) return {};
  return {family->name, word->name};
}

std::optional<NamedConstant> find_named_constant(std::string_view word) {
  const size_t dot = std::min(word.find('.'), word.size());
  const Family* family = find_entry(
      families(), [&](const Family& family) { return family.name == word.substr(0, dot); });
  if (family == nullptr || dot == word.size()) return std::nullopt;
  const Word* found = find_word(family->words, word.substr(dot + 1));
  if (found == nullptr) return std::nullopt;
  return NamedConstant{family->kind, found->number};
}

const SlotFacts& facts(Slot::Kind kind) {
  const auto index = static_cast<size_t>(kind);
  if (index >= std::size(slots)) throw InternalError("ir", "a slot of no known kind.");
  return slots[index];
}

const SlotFacts* find_slot_kind(std::string_view name) {
  return find_entry(slots, [&](const SlotFacts& slot) { return slot.name == name; });
}

c10::ArrayRef<TagName> tag_names() {
  return tags;
}

const TagName* find_tag(std::string_view name) {
  return find_entry(tags, [&](const TagName& tag) { return tag.name == name; });
}

}  // namespace ahead
