#include "ir/operator_hint.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "ir/operator_name.h"

namespace ahead {
namespace {

/// How many characters must be added, removed or changed to make one text of the other.
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t changed = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = std::exchange(row[j], std::min({row[j] + 1, row[j - 1] + 1, changed}));
    }
  }
  return row.back();
}

std::string without_overload(std::string_view name) {
  return std::string(name.substr(0, name.find('.', name.find('.') + 1)));
}

std::vector<std::string> all_operators() {
  std::vector<std::string> names;
  for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
    names.push_back(printed_name(name));
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

std::string operator_hint(std::string_view unknown) {
  constexpr size_t most_overloads = 8;
  // Short names are all near each other.
  const size_t most_edits = std::min<size_t>(3, (unknown.size() - unknown.find('.') - 1) / 2);
  const std::string base = without_overload(unknown);
  std::vector<std::string> overloads;
  std::string nearest;
  size_t edits = most_edits + 1;
  for (const std::string& name : all_operators()) {
    if (without_overload(name) == base) overloads.push_back(name);
    const size_t needed = edit_distance(name, unknown);
    if (needed < edits) {
      edits = needed;
      nearest = name;
    }
  }
  if (overloads.empty() && !nearest.empty()) return "Did you mean " + nearest + "?";
  if (overloads.empty()) return "Is the library that registers it loaded?";
  std::string text = "There is";
  for (size_t i = 0; i < std::min(overloads.size(), most_overloads); ++i) {
    text += (i == 0 ? " " : ", ") + overloads[i];
  }
  return text + (overloads.size() > most_overloads ? ", …" : ".");
}

}  // namespace ahead
