#include "partition/segments.h"

#include <algorithm>

#include "partition/cost.h"

namespace ahead::partition {

Segments::Segments(const JointFacts& joint) {
  std::vector<size_t> last_use(joint.graph.value_capacity());
  for (size_t i = 0; i < joint.nodes.size(); ++i) {
    if (joint.nodes[i]->phase != Phase::Forward || joint.roles[i].in_backward) continue;
    places_.push_back(i);
    joint.nodes[i]->for_each_operand(
        [&](const Value* value) { last_use[joint.aliasing.base(value)->id()] = i; });
  }
  for (size_t i : places_) {
    for (const Value* result : joint.nodes[i]->results()) {
      if (result == nullptr || joint.aliasing.is_view(result)) continue;
      spans_.push_back(
          {i, last_use[result->id()], storage_bytes(result->meta, joint.graph.example_sizes())});
    }
  }
  follow_memory(joint);
}

void Segments::follow_memory(const JointFacts& joint) {
  std::vector<int64_t> freed(joint.nodes.size());
  int64_t alive = 0, made = 0;
  auto span = spans_.begin();
  for (size_t place : places_) {
    for (; span != spans_.end() && span->node == place; ++span) {
      made += span->bytes;
      if (span->last_use <= place) continue;
      alive += span->bytes;
      freed[span->last_use] += span->bytes;
    }
    alive -= freed[place];
    alive_.push_back(alive);
    made_.push_back(made);
  }
}

std::vector<size_t> Segments::boundary(size_t count) const {
  std::vector<size_t> cuts;
  if (made_.empty()) return cuts;
  const double length = static_cast<double>(made_.back()) / static_cast<double>(count);
  for (size_t i = 1; i < count; ++i) choose_cut(static_cast<double>(i) * length, length / 2, cuts);
  std::vector<size_t> nodes;
  for (const Span& span : spans_) {
    const auto cut = std::lower_bound(cuts.begin(), cuts.end(), span.node);
    if (cut != cuts.end() && *cut < span.last_use) nodes.push_back(span.node);
  }
  return nodes;
}

/// Adds the cut where the fewest bytes are alive, within reach of the ideal place.
void Segments::choose_cut(double ideal, double reach, std::vector<size_t>& cuts) const {
  const auto first = std::lower_bound(made_.begin(), made_.end(), ideal - reach);
  const auto last = std::upper_bound(first, made_.end(), ideal + reach);
  if (first == last) return;
  const auto at = std::min_element(alive_.begin() + (first - made_.begin()),
                                   alive_.begin() + (last - made_.begin()));
  const size_t place = places_[static_cast<size_t>(at - alive_.begin())];
  if (cuts.empty() || cuts.back() < place) cuts.push_back(place);
}

}  // namespace ahead::partition
