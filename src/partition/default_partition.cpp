#include "partition/default_partition.h"
#include "ahead/partition.h"
#include "partition/recompute_rules.h"

namespace ahead {
namespace partition {
namespace {

Verdict judge(const Node& node, const Role& role, const Ruling& ruling) {
  if (ruling.again == Again::View || ruling.again == Again::Must) return {true, ruling.reason};
  if (ruling.again == Again::Cheap && node.has(Tag::PreferRecompute)) return {true, ruling.reason};
  if (node.phase == Phase::Backward && !role.in_forward) return {true, "of the backward phase"};
  if (ruling.again == Again::Never) return {false, ruling.reason};
  return {false, "the backward takes it, and computes nothing again"};
}

}  // namespace

std::vector<Verdict> default_verdicts(const JointFacts& joint, const std::vector<Ruling>& rulings) {
  std::vector<Verdict> verdicts;
  verdicts.reserve(joint.nodes.size());
  for (size_t i = 0; i < joint.nodes.size(); ++i)
    verdicts.push_back(judge(*joint.nodes[i], joint.roles[i], rulings[i]));
  return verdicts;
}

}  // namespace partition

PartitionedGraphs partition_default(const JointGraph& joint) {
  using namespace partition;  // NOLINT(google-build-using-namespace): the folder's own
  const JointFacts facts(joint);
  const auto verdicts = default_verdicts(facts, apply_recompute_rules(facts, {}));
  return extract(facts, verdicts, find_static_inputs(joint, {}), Explain::Yes);
}

}  // namespace ahead
