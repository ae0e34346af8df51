#include "ahead/partition.h"
#include "ops/facts.h"
#include "ops/node_facts.h"
#include "partition/extract.h"

namespace ahead {
namespace partition {
namespace {

Verdict judge(const Node& node, const Role& role) {
  if (ops::is_ordered(node)) return {false, ops::facts(node.op()).recompute_reason};
  if (ops::is_view(node)) return {true, ops::facts(node.op()).recompute_reason};
  if (node.has(Tag::MustRecompute)) return {true, "tagged must_recompute"};
  if (node.phase == Phase::Backward && !role.in_forward) return {true, "of the backward phase"};
  return {false, "the backward takes it, and computes nothing again"};
}

}  // namespace
}  // namespace partition

PartitionedGraphs partition_default(const JointGraph& joint) {
  using namespace partition;  // NOLINT(google-build-using-namespace): the folder's own
  const JointFacts facts(joint);
  std::vector<Verdict> verdicts;
  verdicts.reserve(facts.nodes.size());
  for (size_t i = 0; i < facts.nodes.size(); ++i)
    verdicts.push_back(judge(*facts.nodes[i], facts.roles[i]));
  return extract(facts, verdicts, find_static_inputs(joint, {}));
}

}  // namespace ahead
