#include "engine/cache.h"

#include <c10/util/Exception.h>

#include <algorithm>

#include "base/hash.h"

namespace ahead::engine {
namespace {

constexpr size_t most_reasons = 256;

/// Of so many programs that were dropped it is remembered when they were used.
constexpr size_t most_dropped = 1024;

std::string_view as_bytes(const void* data, size_t size) {
  return {static_cast<const char*>(data), size};
}

/// The same for all backwards that the program is for.
uint64_t hash_of(const Backward& backward, const Program& program) {
  const uint64_t key = hash_bytes(as_bytes(backward.key().data(), backward.key().size()));
  if (!program.has_fixed_sizes()) return key;
  const std::vector<int64_t>& sizes = backward.sizes();
  return hash_bytes(as_bytes(sizes.data(), sizes.size() * sizeof(int64_t)), key);
}

}  // namespace

Cache& Cache::instance() {
  static Cache* cache = new Cache;
  return *cache;
}

void Cache::Use::note(uint64_t now) {
  if (last != 0) interval = now - last;
  last = now;
}

/// What was used once may never be used again. Otherwise it takes as long as the last time; where
/// that is over, as long again as it has taken so far.
uint64_t Cache::Use::expected_in(uint64_t now) const {
  if (interval == 0) return UINT64_MAX;
  const uint64_t age = now - last;
  return age <= interval ? interval - age : age;
}

std::optional<Cache::Hit> Cache::find_hit(const Backward& backward) {
  for (auto entry = entries_.begin(); entry != entries_.end(); ++entry) {
    if (backward.key() != (*entry)->key) continue;
    auto sizes = (*entry)->program->match(backward.sizes());
    if (!sizes) continue;
    std::rotate(entries_.begin(), entry, entry + 1);
    return Hit{entries_.front()->program, std::move(*sizes)};
  }
  return std::nullopt;
}

std::optional<Cache::Hit> Cache::find(const Backward& backward, Miss& miss) {
  std::lock_guard<std::mutex> lock(mutex_);
  ++now_;
  if (auto hit = find_hit(backward)) {
    entries_.front()->use.note(now_);
    return hit;
  }
  const Entry* like = nullptr;
  for (const auto& entry : entries_) {
    const bool is_for_others = backward.key() == entry->key;
    if (like == nullptr || is_for_others) like = entry.get();
    if (!is_for_others) continue;
    miss.like = entry->program;
    break;
  }
  miss.reason = like == nullptr ? "no backward was captured before" : difference(*like, backward);
  return std::nullopt;
}

Cache::Hit Cache::add(const Backward& backward, Hit made, int64_t limit) {
  auto entry = std::make_unique<Entry>();
  entry->key = backward.key().vec();
  for (const Step& step : backward.steps()) entry->key_ends.push_back(step.key_end);
  entry->program = made.program;
  entry->hash = hash_of(backward, *made.program);
  // What a backend made is freed without the lock.
  std::vector<std::unique_ptr<Entry>> gone;
  bool tells = false;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (auto hit = find_hit(backward)) return std::move(*hit);
    entry->number = next_number_++;
    entry->use = take_dropped_use(entry->hash);
    entry->use.note(now_);
    entries_.push_front(std::move(entry));
    while (static_cast<int64_t>(entries_.size()) > std::max<int64_t>(limit, 1))
      gone.push_back(drop(find_least_needed()));
    tells = !gone.empty() && !std::exchange(has_told_limit_, true);
  }
  if (tells) tell_limit(limit);
  return made;
}

/// When this backward was used, if it was not dropped too long ago.
Cache::Use Cache::take_dropped_use(uint64_t hash) {
  const auto is_same = [&](const auto& dropped) { return dropped.first == hash; };
  const auto found = std::find_if(dropped_.begin(), dropped_.end(), is_same);
  if (found == dropped_.end()) return {};
  const Use use = found->second;
  dropped_.erase(found);
  return use;
}

/// Of several with the same prospects the newest, which comes first, if it is one of them: it has
/// proved nothing yet. Otherwise the one that was not used for longest.
Cache::Entries::iterator Cache::find_least_needed() {
  auto least = entries_.begin();
  uint64_t longest = (*least)->use.expected_in(now_);
  bool is_newest = true;
  for (auto entry = std::next(least); entry != entries_.end(); ++entry) {
    const uint64_t expected = (*entry)->use.expected_in(now_);
    if (expected < longest || (expected == longest && is_newest)) continue;
    least = entry;
    longest = expected;
    is_newest = false;
  }
  return least;
}

std::unique_ptr<Cache::Entry> Cache::drop(Entries::iterator entry) {
  std::unique_ptr<Entry> dropped = std::move(*entry);
  entries_.erase(entry);
  dropped_.emplace_back(dropped->hash, dropped->use);
  if (dropped_.size() > most_dropped) dropped_.pop_front();
  return dropped;
}

void Cache::tell_limit(int64_t limit) {
  const std::string message =
      "[compiled autograd] Options::cache_limit: more than " + std::to_string(limit) +
      " different backwards are run. Those that come least often are captured again each time. "
      "Raise the limit, or leave Options::dynamic on, with which sizes are arguments of graphs.";
  note(message);
  TORCH_WARN(message);
}

std::string Cache::difference(const Entry& entry, const Backward& backward) {
  const c10::ArrayRef<uint8_t> key = backward.key(), other = entry.key;
  const auto differ = std::mismatch(key.begin(), key.end(), other.begin(), other.end());
  const auto same = static_cast<size_t>(differ.first - key.begin());
  if (key == other) {
    return std::to_string(entry.program->count_changed(backward.sizes())) +
           " changed tensor sizes or strides (total of " + std::to_string(backward.sizes().size()) +
           ")";
  }
  size_t step = 0;
  while (step + 1 < backward.steps().size() && backward.steps()[step].key_end <= same) ++step;
  const Step& first = backward.steps()[step];
  const size_t begin = step == 0 ? 0 : backward.steps()[step - 1].key_end;
  std::string text = "new autograd node: " + first.node->name() + " (NodeCall " +
                     std::to_string(step) + ") with key size " +
                     std::to_string(first.key_end - begin);
  if (step >= entry.key_ends.size()) return text + ", previously no node";
  const size_t before = step == 0 ? 0 : entry.key_ends[step - 1];
  return text + ", previously " + std::to_string(entry.key_ends[step] - before);
}

void Cache::note(std::string reason) {
  std::lock_guard<std::mutex> lock(mutex_);
  reasons_.push_back(std::move(reason));
  if (reasons_.size() > most_reasons) reasons_.pop_front();
}

compiled_autograd::Stats Cache::stats() {
  std::lock_guard<std::mutex> lock(mutex_);
  return stats_;
}

std::vector<std::string> Cache::reasons() {
  std::lock_guard<std::mutex> lock(mutex_);
  return {reasons_.begin(), reasons_.end()};
}

std::vector<std::shared_ptr<const Graph>> Cache::graphs() {
  std::lock_guard<std::mutex> lock(mutex_);
  std::vector<Entry*> entries;
  for (const auto& entry : entries_) entries.push_back(entry.get());
  std::sort(entries.begin(), entries.end(),
            [](const Entry* a, const Entry* b) { return a->number < b->number; });
  std::vector<std::shared_ptr<const Graph>> graphs;
  for (Entry* entry : entries) {
    for (auto& graph : entry->program->graphs()) graphs.push_back(std::move(graph));
  }
  return graphs;
}

void Cache::clear() {
  Entries gone;
  std::lock_guard<std::mutex> lock(mutex_);
  gone.swap(entries_);
  dropped_.clear();
  next_number_ = 0;
  has_told_limit_ = false;
  stats_ = {};
  reasons_.clear();
}

}  // namespace ahead::engine
