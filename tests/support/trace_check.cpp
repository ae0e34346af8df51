#include "support/trace_check.h"

#include <gtest/gtest.h>

#include "support/round_trip.h"

namespace ahead {
namespace {

using at::Tensor;
using Tensors = std::vector<at::Tensor>;
using Kind = Slot::Kind;

constexpr uint64_t kSceneSeed = 0, kRunSeed = 17, kTangentSeed = 100;

void expect_same(const Tensor& expected, const Tensor& actual, const std::string& what) {
  const std::string difference = tensor_difference(expected, actual);
  EXPECT_TRUE(difference.empty()) << what << ": " << difference;
}

/// Where a graph input came from in the scene: an argument or a captured tensor.
Tensor origin(const Scene& scene, const Graph::Input& input) {
  return input.slot.kind == Kind::Primal ? scene.inputs.at(static_cast<size_t>(input.slot.index))
                                         : input.captured;
}

/// The same tensor of another scene; captured ones are found by position.
Tensor counterpart(const Scene& from, const Scene& to, const Tensor& tensor) {
  for (size_t i = 0; i < from.inputs.size(); ++i) {
    if (from.inputs[i].is_same(tensor)) return to.inputs[i];
  }
  for (size_t i = 0; i < from.captured.size(); ++i) {
    if (from.captured[i].is_same(tensor)) return to.captured[i];
    if (from.captured[i].is_leaf() && from.captured[i].grad().is_same(tensor))
      return to.captured[i].grad();
  }
  return {};
}

class Comparison {
 public:
  explicit Comparison(const std::function<Scene()>& make_scene)
      : eager_(made_by(make_scene)), traced_(made_by(make_scene)) {}

  JointGraph run() {
    trace();
    run_eager();
    run_graph();
    compare_outputs();
    compare_scene();
    return graph_;
  }

 private:
  static Scene made_by(const std::function<Scene()>& make_scene) {
    torch::manual_seed(kSceneSeed);
    return make_scene();
  }

  void trace() {
    Tensors outside = traced_.inputs;
    outside.insert(outside.end(), traced_.captured.begin(), traced_.captured.end());
    const std::vector<TensorSnapshot> before(outside.begin(), outside.end());
    const Tensor state = random_state();
    graph_ = trace_joint(traced_.function, traced_.inputs);
    EXPECT_TRUE(state.equal(random_state())) << "tracing drew random numbers";
    for (size_t i = 0; i < outside.size(); ++i)
      EXPECT_EQ(before[i].change(outside[i]), "") << "input or captured tensor " << i;
    expect_round_trip(graph_);
  }

  void run_eager() {
    torch::manual_seed(kRunSeed);
    outputs_ = eager_.function(eager_.inputs);
    random_state_ = random_state();
  }

  /// The eager tensor behind a forward output of the graph.
  Tensor eager_output(const Slot& slot) const {
    if (slot.kind == Kind::Output) return outputs_.at(static_cast<size_t>(slot.index));
    return counterpart(traced_, eager_,
                       origin(traced_, graph_.inputs()[static_cast<size_t>(slot.index)]));
  }

  void run_graph() {
    Tensors args;
    for (const auto& input : graph_.inputs()) {
      if (input.slot.kind == Kind::Primal) {
        args.push_back(traced_.inputs[static_cast<size_t>(input.slot.index)]);
      } else if (input.slot.kind == Kind::Tangent) {
        const Tensor root =
            eager_output(graph_.outputs()[static_cast<size_t>(input.slot.index)].slot);
        tangents_.push_back(random_tangent(at::empty_like(root.detach()),
                                           kTangentSeed + static_cast<uint64_t>(input.slot.index)));
        roots_.push_back(root);
        args.push_back(tangents_.back());
      }
    }
    torch::manual_seed(kRunSeed);
    results_ = interpret(graph_, std::move(args));
    EXPECT_TRUE(random_state_.equal(random_state())) << "other random numbers were drawn";
  }

  Tensors eager_gradients(const Tensors& targets) {
    if (roots_.empty() || targets.empty()) return Tensors(targets.size());
    return torch::autograd::grad(roots_, targets, tangents_, /*retain_graph=*/true,
                                 /*create_graph=*/false, /*allow_unused=*/true);
  }

  Tensor differentiation_target(const Graph::Input& input) const {
    if (input.slot.kind == Kind::Primal && !eager_.leaves.empty()) {
      return eager_.leaves[static_cast<size_t>(input.slot.index)];
    }
    return counterpart(traced_, eager_, origin(traced_, input));
  }

  void compare_outputs() {
    size_t gradients = 0;
    for (size_t i = 0; i < results_.size(); ++i) {
      const auto& output = graph_.outputs()[i];
      const std::string what = output.slot.str();
      if (output.slot.kind == Kind::Output) {
        const Tensor expected = outputs_.at(static_cast<size_t>(output.slot.index));
        expect_same(expected, results_[i], what);
        EXPECT_EQ(expected.defined() && expected.requires_grad(), output.requires_grad) << what;
      } else if (output.slot.kind == Kind::GradOf) {
        ++gradients;
        const auto& input = graph_.inputs()[static_cast<size_t>(output.slot.index)];
        expect_same(eager_gradients({differentiation_target(input)})[0], results_[i], what);
      }
    }
    EXPECT_EQ(gradients, count_differentiable());
  }

  size_t count_differentiable() const {
    size_t count = 0;
    for (const auto& input : graph_.inputs()) count += input.value->meta.requires_grad ? 1 : 0;
    return count;
  }

  /// Applies what the graph says about the world outside, and compares the two worlds.
  void compare_scene() {
    torch::NoGradGuard no_grad;
    for (size_t i = 0; i < results_.size(); ++i) {
      const auto& output = graph_.outputs()[i];
      if (output.slot.kind != Kind::MutatedInput && output.slot.kind != Kind::AccumulatedGrad)
        continue;
      Tensor target = origin(traced_, graph_.inputs()[static_cast<size_t>(output.slot.index)]);
      if (output.slot.kind == Kind::MutatedInput) {
        target.detach().copy_(results_[i]);
      } else {
        target.mutable_grad() = results_[i];
      }
    }
    compare_tensors(eager_.inputs, traced_.inputs, "input");
    compare_tensors(eager_.captured, traced_.captured, "captured tensor");
  }

  static void compare_tensors(const Tensors& eager, const Tensors& traced,
                              const std::string& kind) {
    for (size_t i = 0; i < eager.size(); ++i) {
      const std::string what = kind + " " + std::to_string(i);
      expect_same(eager[i].detach(), traced[i].detach(), what);
      if (eager[i].is_leaf()) expect_same(eager[i].grad(), traced[i].grad(), what + ".grad");
    }
  }

  Scene eager_, traced_;
  JointGraph graph_;
  Tensors outputs_, results_, roots_, tangents_;
  Tensor random_state_;
};

}  // namespace

size_t count(const Graph& graph, const std::string& op) {
  size_t found = 0;
  for (const Node& node : graph.nodes()) found += node.op().name() == op ? 1 : 0;
  return found;
}

JointGraph expect_like_eager(const std::function<Scene()>& make_scene) {
  return Comparison(make_scene).run();
}

}  // namespace ahead
