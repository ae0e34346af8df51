#include "native/print/prelude.h"

#include <array>
#include <cctype>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "ahead/errors.h"
#include "base/hash.h"

namespace ahead::native {
namespace {

/// Calls `use` with each identifier of a piece of C++; comments count as code.
template <class Use>
void for_each_identifier(std::string_view text, const Use& use) {
  const auto is_part = [&](size_t i) {
    return std::isalnum(static_cast<unsigned char>(text[i])) != 0 || text[i] == '_';
  };
  for (size_t begin = 0; begin < text.size();) {
    size_t end = begin;
    while (end < text.size() && is_part(end)) ++end;
    if (end > begin) use(text.substr(begin, end - begin));
    begin = end + 1;
  }
}

bool is_wide_type(std::string_view identifier) {
  return identifier == "D" || identifier == "L" || identifier == "UL";
}

std::array<std::span<const Word>, 7> all_words() {
  return {basic_words(), memory_words(), arithmetic_words(), table_words(),
          float_words(), double_words(), library_words()};
}

/// A function that a kernel calls more often is compiled once, by itself: inlining it so often
/// takes a compiler longer than all the rest.
constexpr size_t most_inlined = 16;

/// The definition of a function that is called rather than inlined.
std::string called(std::string text) {
  constexpr std::string_view inlined = "\nINLINE ", by_itself = "\nCALLED ";
  for (size_t at = 0; (at = text.find(inlined, at)) != std::string::npos; at += by_itself.size())
    text.replace(at, inlined.size(), by_itself);
  return text;
}

/// All words in the order in which they are printed, and what each of them needs.
class Dictionary {
 public:
  Dictionary() {
    for (const std::span<const Word> words : all_words())
      for (const Word& word : words) places_[word.name].push_back(add(word));
    for (const std::span<const Word> words : {float_words(), double_words()})
      for (const Word& word : words) functions_.insert(word.name);
    for (Entry& entry : entries_)
      for_each_identifier(entry.word->text, [&](std::string_view identifier) {
        const auto found = places_.find(identifier);
        if (found != places_.end() && identifier != entry.word->name)
          entry.needs.push_back(identifier);
        entry.names_wide_type |= is_wide_type(identifier);
      });
  }

  std::string prelude_of(std::string_view kernel, int lanes) const {
    Chosen chosen{lanes, std::vector<bool>(entries_.size()), {}, false};
    std::unordered_map<std::string_view, size_t> calls;
    for_each_identifier(kernel, [&](std::string_view identifier) {
      chosen.wide |= is_wide_type(identifier);
      take(identifier, chosen);
      if (functions_.count(identifier) != 0) ++calls[identifier];
    });
    if (chosen.wide) take_wide_overloads(chosen);
    std::string text;
    for (size_t i = 0; i < entries_.size(); ++i) {
      if (!chosen.entries[i]) continue;
      const Word& word = *entries_[i].word;
      const auto found = calls.find(word.name);
      const bool is_called = found != calls.end() && found->second > most_inlined;
      text +=
          (is_called ? called(word.text) : word.text).substr(1);  // without the first line break
    }
    return text;
  }

 private:
  struct Entry {
    const Word* word;
    std::vector<std::string_view> needs;
    bool names_wide_type = false;
  };
  struct Chosen {
    int lanes;
    std::vector<bool> entries;
    std::unordered_set<std::string_view> names;
    bool wide;
  };

  size_t add(const Word& word) {
    entries_.push_back({&word, {}, false});
    return entries_.size() - 1;
  }

  void take(std::string_view name, Chosen& chosen) const {
    const auto found = places_.find(name);
    if (found == places_.end() || !chosen.names.insert(found->first).second) return;
    for (const size_t place : found->second)
      if (!entries_[place].word->wide) take_entry(place, chosen);
  }

  void take_entry(size_t place, Chosen& chosen) const {
    const Entry& entry = entries_[place];
    if (entry.word->lanes != 0 && entry.word->lanes != chosen.lanes) return;
    chosen.entries[place] = true;
    chosen.wide |= entry.names_wide_type;
    for (const std::string_view need : entry.needs) take(need, chosen);
  }

  void take_wide_overloads(Chosen& chosen) const {
    // Downwards: what an overload needs comes before it.
    for (size_t place = entries_.size(); place-- > 0;) {
      const Entry& entry = entries_[place];
      if (entry.word->wide && chosen.names.count(entry.word->name) != 0) take_entry(place, chosen);
    }
  }

  std::vector<Entry> entries_;
  std::unordered_map<std::string_view, std::vector<size_t>> places_;
  std::unordered_set<std::string_view> functions_;  ///< exp, tanh, …
};

}  // namespace

std::string with_prelude(const std::string& kernel, int lanes) {
  if (lanes < 4 || lanes > 64 || (lanes & (lanes - 1)) != 0)
    throw InternalError("native", "kernels of " + std::to_string(lanes) + " lanes.");
  static const auto* dictionary = new Dictionary;
  return "#undef LANES\n#define LANES " + std::to_string(lanes) + "\n" +
         dictionary->prelude_of(kernel, lanes) + kernel;
}

uint64_t hash_of_words() {
  static const uint64_t hash = [] {
    uint64_t all = 0;
    for (const std::span<const Word> words : all_words())
      for (const Word& word : words) all = hash_bytes(word.text, all);
    return all;
  }();
  return hash;
}

}  // namespace ahead::native
