#include "partition/budget.h"

#include <algorithm>
#include <limits>

#include "ahead/errors.h"
#include "partition/cost.h"
#include "partition/default_partition.h"
#include "partition/knapsack.h"
#include "partition/min_cut.h"

namespace ahead::partition {
namespace {

class Ladder {
 public:
  Ladder(const JointFacts& joint, std::vector<Ruling> rulings, const PartitionOptions& options)
      : joint_(joint),
        rulings_(std::move(rulings)),
        is_static_(find_static_inputs(joint.graph, options.static_inputs)) {}

  PartitionedGraphs climb(double budget) {
    offer(default_verdicts(joint_, rulings_));
    const auto target = static_cast<int64_t>(budget * static_cast<double>(saved_));
    smallest_cut_ = min_cut_verdicts(joint_, rulings_, is_static_);
    offer(smallest_cut_);
    if (saved_ > target) climb_below(target);
    return extract(joint_, best_, is_static_, Explain::Yes);
  }

 private:
  /// Takes a rung unless it is worse than the one before.
  void offer(std::vector<Verdict> verdicts) {
    const PartitionedGraphs rung = extract(joint_, verdicts, is_static_, Explain::No);
    const int64_t saved = rung.saved_bytes(), peak = rung.peak_bytes();
    if (saved > saved_ || peak > peak_) return;
    best_ = std::move(verdicts);
    saved_ = saved;
    peak_ = peak;
  }

  void climb_below(int64_t target) {
    find_candidates();
    std::vector<Knapsack::Item> items;
    for (const Candidate& candidate : candidates_)
      items.push_back({candidate.bytes, candidate.runtime});
    const Knapsack knapsack(std::move(items));
    for (int64_t capacity : knapsack.steps(num_rungs())) {
      offer(min_cut_verdicts(joint_, rulings_keeping(knapsack.best(capacity)), is_static_));
      if (saved_ <= target) return;
    }
  }

  /// Each rung costs time in proportion to the graph, so a large graph gets fewer.
  size_t num_rungs() const {
    constexpr size_t nodes_for_all_rungs = 40'000;
    return std::clamp<size_t>(nodes_for_all_rungs / (joint_.nodes.size() + 1), 8, 64);
  }

  /// What the smallest cut saves although it could be computed again.
  void find_candidates() {
    std::vector<bool> needed(joint_.graph.value_capacity());
    mark_needed(needed);
    std::vector<double> chain(joint_.nodes.size());
    for (size_t i = 0; i < joint_.nodes.size(); ++i) {
      const Node& node = *joint_.nodes[i];
      Candidate candidate{i, 0, runtime(node) + longest_chain_to(node, chain)};
      for (const Value* result : node.results()) {
        if (result != nullptr && needed[result->id()] && !smallest_cut_[i].compute_in_backward)
          candidate.bytes += storage_bytes(result->meta);
      }
      const bool saved = candidate.bytes > 0;
      chain[i] = saved ? 0 : candidate.runtime;
      if (saved && rulings_[i].again == Again::Expensive && !joint_.roles[i].in_backward)
        candidates_.push_back(candidate);
    }
  }

  double longest_chain_to(const Node& node, const std::vector<double>& chain) const {
    double longest = 0;
    node.for_each_operand([&](const Value* value) {
      const int32_t producer = joint_.producer[value->id()];
      if (producer >= 0) longest = std::max(longest, chain[static_cast<size_t>(producer)]);
    });
    return longest;
  }

  void mark_needed(std::vector<bool>& needed) const {
    for (const Graph::Output& output : joint_.graph.outputs()) {
      if (output.value != nullptr && !is_forward_output(output)) needed[output.value->id()] = true;
    }
    for (size_t i = joint_.nodes.size(); i-- > 0;) {
      const Node& node = *joint_.nodes[i];
      const Role& role = joint_.roles[i];
      const bool any = std::any_of(node.results().begin(), node.results().end(),
                                   [&](const Value* v) { return v != nullptr && needed[v->id()]; });
      if (role.in_backward ? role.serves_backward : any && smallest_cut_[i].compute_in_backward)
        node.for_each_operand([&](const Value* value) { needed[value->id()] = true; });
    }
  }

  std::vector<Ruling> rulings_keeping(const std::vector<bool>& kept) const {
    std::vector<Ruling> rulings = rulings_;
    for (Ruling& ruling : rulings) {
      if (ruling.again == Again::Expensive)
        ruling = {Again::Cheap, "the memory budget does not allow to save it"};
    }
    for (size_t i = 0; i < kept.size(); ++i) {
      if (kept[i]) rulings[candidates_[i].node] = rulings_[candidates_[i].node];
    }
    return rulings;
  }

  struct Candidate {
    size_t node;
    int64_t bytes;
    double runtime;  ///< of computing it again, with what is not saved before it
  };

  const JointFacts& joint_;
  const std::vector<Ruling> rulings_;
  const std::vector<bool> is_static_;
  std::vector<Verdict> smallest_cut_;
  std::vector<Candidate> candidates_;
  std::vector<Verdict> best_;
  int64_t saved_ = std::numeric_limits<int64_t>::max();
  int64_t peak_ = std::numeric_limits<int64_t>::max();
};

}  // namespace

PartitionedGraphs partition_within_budget(const JointFacts& joint, std::vector<Ruling> rulings,
                                          const PartitionOptions& options) {
  return Ladder(joint, std::move(rulings), options).climb(options.memory_budget);
}

}  // namespace ahead::partition

namespace ahead {

PartitionedGraphs partition_min_cut(const JointGraph& joint, const PartitionOptions& options) {
  using namespace partition;  // NOLINT(google-build-using-namespace): the folder's own
  if (!(options.memory_budget >= 0 && options.memory_budget <= 1)) {
    throw UserError("partition", "memory_budget is " + std::to_string(options.memory_budget) +
                                     ": it must be from 0 to 1.");
  }
  if (options.longest_chain < 1) throw UserError("partition", "longest_chain must be at least 1.");
  const JointFacts facts(joint);
  return partition_within_budget(facts, apply_recompute_rules(facts, options), options);
}

}  // namespace ahead
