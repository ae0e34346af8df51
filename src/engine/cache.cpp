#include "engine/cache.h"

#include <algorithm>

namespace ahead::engine {
namespace {

constexpr size_t most_reasons = 256;

}  // namespace

Cache& Cache::instance() {
  static Cache* cache = new Cache;
  return *cache;
}

std::optional<Cache::Hit> Cache::find(const Backward& backward, Miss& miss) {
  std::lock_guard<std::mutex> lock(mutex_);
  const Entry* like = nullptr;
  for (size_t i = 0; i < entries_.size(); ++i) {
    if (backward.key() != entries_[i]->key) {
      if (like == nullptr) like = entries_[i].get();
      continue;
    }
    if (auto sizes = entries_[i]->program->match(backward.sizes())) {
      std::rotate(entries_.begin(), entries_.begin() + static_cast<std::ptrdiff_t>(i),
                  entries_.begin() + static_cast<std::ptrdiff_t>(i) + 1);
      return Hit{entries_.front()->program, std::move(*sizes)};
    }
    if (miss.like != nullptr) continue;
    like = entries_[i].get();
    miss.like = like->program;
  }
  miss.reason = like == nullptr ? "no backward was captured before" : difference(*like, backward);
  return std::nullopt;
}

void Cache::add(const Backward& backward, std::shared_ptr<Program> program, int64_t limit) {
  auto entry = std::make_unique<Entry>();
  entry->key = backward.key().vec();
  for (const Step& step : backward.steps()) entry->key_ends.push_back(step.key_end);
  entry->program = std::move(program);
  std::lock_guard<std::mutex> lock(mutex_);
  entry->number = next_number_++;
  entries_.push_front(std::move(entry));
  while (static_cast<int64_t>(entries_.size()) > std::max<int64_t>(limit, 1)) entries_.pop_back();
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
  std::lock_guard<std::mutex> lock(mutex_);
  entries_.clear();
  next_number_ = 0;
  stats_ = {};
  reasons_.clear();
}

}  // namespace ahead::engine
