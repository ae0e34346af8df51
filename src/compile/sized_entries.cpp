#include "compile/sized_entries.h"

#include <algorithm>

#include "base/hash.h"

namespace ahead::detail {
namespace {

/// Lets go of the half that ran longest ago.
void forget_half(SizedEntries::Map& map) {
  std::vector<uint64_t> runs;
  for (const auto& [key, entry] : map) runs.push_back(entry->last_run.load());
  const auto middle = runs.begin() + static_cast<std::ptrdiff_t>(runs.size() / 2);
  std::nth_element(runs.begin(), middle, runs.end());
  std::erase_if(map, [&](const auto& each) { return each.second->last_run.load() < *middle; });
}

/// Lets go of the one with this key that ran longest ago.
void forget_one(SizedEntries::Map& map, uint64_t key) {
  const auto [first, last] = map.equal_range(key);
  map.erase(std::min_element(first, last, [](const auto& a, const auto& b) {
    return a.second->last_run.load() < b.second->last_run.load();
  }));
}

}  // namespace

SizedKeys::SizedKeys(const Situation& now) : by_sizes(now.inputs.leaves.size()) {
  const auto add = [&](const std::vector<at::Tensor>& tensors) {
    for (const at::Tensor& tensor : tensors) {
      for (const int64_t size : tensor.sizes())
        by_sizes = hash_combine(by_sizes, static_cast<uint64_t>(size));
    }
  };
  add(now.inputs.leaves);
  // Wrappers need not look like what is inside.
  if (now.outer != nullptr) add(*now.outer);
  by_numbers = hash_combine(by_sizes, now.inputs.spec.hash());
}

uint64_t SizedEntries::key_with(uint64_t key, const std::vector<int64_t>& value_sizes) {
  key = hash_combine(key, value_sizes.size() + 1);
  for (const int64_t size : value_sizes) key = hash_combine(key, static_cast<uint64_t>(size));
  return key;
}

void SizedEntries::add(const Situation& now, std::shared_ptr<Entry> entry) {
  const SizedKeys keys(now);
  const uint64_t key = entry->compiled.free.empty() ? keys.by_numbers : keys.by_sizes;
  auto changed = std::make_shared<Map>(*all());
  if (changed->size() >= kMost) forget_half(*changed);
  std::erase_if(*changed, [&](const auto& each) {
    const Entry& other = *each.second;
    return !other.compiled.free.empty() && other.compiled.sized == entry->compiled.sized &&
           each.first == keys.by_sizes && other.kind.has_structure(now.inputs.spec);
  });
  const auto add_by = [&](uint64_t place) {
    while (changed->count(place) >= kMostAlike) forget_one(*changed, place);
    changed->emplace(place, entry);
  };
  if (!entry->value_sizes.empty()) {
    std::erase_if(*changed, [&](const auto& each) {
      return each.first == key && each.second->compiled.sized == entry->compiled.sized &&
             !each.second->value_sizes.empty();
    });
    add_by(key_with(key, entry->value_sizes));
  }
  add_by(key);
  map_.store(std::move(changed));
}

void SizedEntries::remove(const std::shared_ptr<Entry>& entry) {
  auto changed = std::make_shared<Map>(*all());
  std::erase_if(*changed, [&](const auto& each) { return each.second == entry; });
  map_.store(std::move(changed));
}

bool SizedEntries::remove_trusted() {
  auto changed = std::make_shared<Map>(*all());
  const size_t count =
      std::erase_if(*changed, [](const auto& each) { return each.second->is_trusted; });
  map_.store(std::move(changed));
  return count != 0;
}

void SizedEntries::remove(const std::shared_ptr<compiling::SizedProgram>& program) {
  auto changed = std::make_shared<Map>(*all());
  std::erase_if(*changed, [&](const auto& each) { return each.second->compiled.sized == program; });
  map_.store(std::move(changed));
}

}  // namespace ahead::detail
