#include "partition/joint_text.h"

#include <gtest/gtest.h>

#include "support/halves.h"

namespace ahead {

JointGraph parse_joint(const std::string& text) {
  return JointGraph(Graph::parse(text));
}

std::vector<at::Tensor> random_args(const Graph& graph) {
  torch::manual_seed(3);
  std::vector<at::Tensor> args;
  for (const Graph::Input& input : graph.inputs()) {
    const TensorMeta& meta = input.value->meta;
    const at::Tensor empty = at::empty_strided(meta.sizes, meta.strides, meta.dtype);
    args.push_back(empty.copy_(at::randn(meta.sizes)));
  }
  return args;
}

void expect_right(const JointGraph& joint, const PartitionedGraphs& halves) {
  EXPECT_EQ(halves_problem(joint, halves, random_args(joint)), "");
}

std::vector<std::string> operators(const Graph& graph) {
  std::vector<std::string> names;
  for (const Node& node : graph.nodes()) names.push_back(node.op().name());
  return names;
}

}  // namespace ahead
