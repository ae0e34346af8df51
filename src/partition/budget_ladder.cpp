#include "partition/budget_ladder.h"

#include <algorithm>

#include "ahead/errors.h"
#include "partition/cost.h"
#include "partition/default_partition.h"
#include "partition/knapsack.h"
#include "partition/min_cut.h"
#include "partition/segments.h"

namespace ahead::partition {
namespace {

class Ladder {
 public:
  Ladder(const JointFacts& joint, std::vector<Ruling> rulings, const PartitionOptions& options)
      : joint_(joint),
        rulings_(std::move(rulings)),
        is_static_(find_static_inputs(joint.graph, options.static_inputs)),
        estimator_(options.runtime),
        fused_(options.fused_operators) {}

  PartitionedGraphs climb(double budget) {
    build(default_verdicts(joint_, rulings_));
    const auto target = static_cast<int64_t>(budget * static_cast<double>(rungs_[0].saved));
    smallest_cut_ = min_cut_verdicts(joint_, rulings_, is_static_);
    build(smallest_cut_);
    if (budget < 1) {
      build_from_knapsack();
      build_from_segments();
    }
    keep_those_that_lead_down();
    return extract(joint_, choose(budget, target).verdicts, is_static_, Explain::Yes);
  }

 private:
  struct Rung {
    std::vector<Verdict> verdicts;
    int64_t saved, peak;
  };

  void build(std::vector<Verdict> verdicts) {
    const PartitionedGraphs halves = extract(joint_, verdicts, is_static_, Explain::No);
    const int64_t peak = fused_.empty() ? halves.peak_bytes() : peak_with_kernels(halves, fused_);
    rungs_.push_back({std::move(verdicts), halves.saved_bytes(), peak});
  }

  void build_from_knapsack() {
    find_candidates();
    std::vector<Knapsack::Item> items;
    for (const Candidate& candidate : candidates_)
      items.push_back({candidate.bytes, candidate.runtime});
    const Knapsack knapsack(std::move(items));
    for (int64_t capacity : knapsack.steps(num_rungs())) {
      const std::vector<bool> kept = knapsack.best(capacity);
      std::vector<size_t> nodes;
      for (size_t i = 0; i < kept.size(); ++i) {
        if (kept[i]) nodes.push_back(candidates_[i].node);
      }
      build(min_cut_verdicts(joint_, rulings_keeping(nodes), is_static_));
    }
  }

  void build_from_segments() {
    const Segments segments(joint_);
    std::vector<size_t> before;
    for (size_t count = 2; count <= 2 * num_rungs(); count += count / 2) {
      std::vector<size_t> nodes = segments.boundary(count);
      if (nodes == before) continue;
      build(min_cut_verdicts(joint_, rulings_keeping(nodes), is_static_));
      before = std::move(nodes);
    }
  }

  /// Drops rungs until each saves no more than the one before it and has no higher peak. The first
  /// two are not sorted with the others, so that no budget does worse than a budget of 1.
  void keep_those_that_lead_down() {
    std::stable_sort(rungs_.begin() + 2, rungs_.end(),
                     [](const Rung& a, const Rung& b) { return a.saved > b.saved; });
    std::vector<Rung> kept;
    for (Rung& rung : rungs_) {
      const bool leads_down =
          kept.empty() || (rung.saved <= kept.back().saved && rung.peak <= kept.back().peak);
      if (leads_down) kept.push_back(std::move(rung));
    }
    rungs_ = std::move(kept);
  }

  /// The first rung within the budget, which is a share of the saved bytes and of the way from the
  /// lowest peak to the highest. The smallest cut costs next to no time, so the default partition
  /// before it is passed over.
  const Rung& choose(double budget, int64_t target) const {
    const size_t cheapest = std::min<size_t>(rungs_.size(), 2) - 1;
    if (budget >= 1) return rungs_[cheapest];
    const int64_t highest = rungs_.front().peak, lowest = rungs_.back().peak;
    const auto peak = lowest + static_cast<int64_t>(budget * static_cast<double>(highest - lowest));
    for (size_t i = cheapest; i < rungs_.size(); ++i) {
      if (rungs_[i].saved <= target && rungs_[i].peak <= peak) return rungs_[i];
    }
    return rungs_.back();
  }

  /// Each rung costs time in proportion to the graph, so a large graph gets fewer.
  size_t num_rungs() const {
    constexpr size_t nodes_for_all_rungs = 20'000;
    return std::clamp<size_t>(nodes_for_all_rungs / (joint_.nodes.size() + 1), 4, 32);
  }

  /// The nodes whose results the smallest cut saves although they could be computed again.
  void find_candidates() {
    const c10::ArrayRef<int64_t> sizes = joint_.graph.example_sizes();
    std::vector<bool> needed(joint_.graph.value_capacity());
    mark_needed(needed);
    std::vector<double> chain(joint_.nodes.size());
    for (size_t i = 0; i < joint_.nodes.size(); ++i) {
      const Node& node = *joint_.nodes[i];
      Candidate candidate{i, 0, runtime(node, estimator_, sizes) + longest_chain_to(node, chain)};
      for (const Value* result : node.results()) {
        if (result != nullptr && needed[result->id()] && !smallest_cut_[i].compute_in_backward)
          candidate.bytes += storage_bytes(result->meta, sizes);
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

  /// Rulings under which all expensive nodes may run again, but not these nodes.
  std::vector<Ruling> rulings_keeping(const std::vector<size_t>& nodes) const {
    std::vector<Ruling> rulings = rulings_;
    for (Ruling& ruling : rulings) {
      if (ruling.again == Again::Expensive)
        ruling = {Again::Cheap, "the memory budget does not allow to save it"};
    }
    for (size_t node : nodes) {
      const Again again = rulings_[node].again;
      if (again == Again::Expensive) rulings[node] = rulings_[node];
      if (again == Again::Cheap)
        rulings[node] = {Again::Expensive, "lies between two segments that are computed again"};
    }
    return rulings;
  }

  struct Candidate {
    size_t node;
    int64_t bytes;
    double runtime;  ///< of computing it again, with the nodes before it that are not saved
  };

  const JointFacts& joint_;
  const std::vector<Ruling> rulings_;
  const std::vector<bool> is_static_;
  const RuntimeEstimator& estimator_;
  const std::vector<std::string>& fused_;  ///< see PartitionOptions
  std::vector<Verdict> smallest_cut_;
  std::vector<Candidate> candidates_;
  std::vector<Rung> rungs_;
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
  if (options.longest_chain < 0)
    throw UserError("partition", "longest_chain must not be negative.");
  const JointFacts facts(joint);
  return partition_within_budget(facts, apply_recompute_rules(facts, options), options);
}

}  // namespace ahead
