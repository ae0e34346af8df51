#include "support/like_eager.h"

#include <gtest/gtest.h>

#include <limits>

#include "support/round_trip.h"

namespace {

using at::Tensor;
using Tensors = std::vector<at::Tensor>;
using Kind = ahead::Slot::Kind;

constexpr uint64_t kRunSeed = 17;

struct Identity : torch::autograd::Function<Identity> {
  static Tensor forward(torch::autograd::AutogradContext*, const Tensor& leaf) {
    return at::empty({0}, leaf.options())
        .set_(leaf.storage(), leaf.storage_offset(), leaf.sizes(), leaf.strides());
  }
  static Tensors backward(torch::autograd::AutogradContext*, Tensors gradients) {
    return gradients;
  }
};

Tensor as_bits(const Tensor& tensor) {
  Tensor plain = tensor.detach().resolve_conj().resolve_neg().contiguous();
  if (plain.is_complex()) plain = at::view_as_real(plain);
  if (!plain.is_floating_point()) return plain;
  plain = plain.masked_fill(plain.isnan(), std::numeric_limits<double>::quiet_NaN());
  const auto integer = plain.element_size() == 2   ? at::kShort
                       : plain.element_size() == 4 ? at::kInt
                                                   : at::kLong;
  return plain.view(integer);
}

std::string describe(const Tensor& tensor) {
  return tensor.defined() ? meaningful(ahead::TensorMeta::of(tensor.detach())).str() : "undefined";
}

void expect_same(const Tensor& expected, const Tensor& actual, const std::string& what) {
  const std::string difference = tensor_difference(expected, actual);
  EXPECT_TRUE(difference.empty()) << what << ": " << difference;
}

Tensor tangent_for(const Tensor& output, int64_t number) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(static_cast<uint64_t>(100 + number));
  const auto wide = output.is_complex() ? at::kComplexDouble : at::kDouble;
  const Tensor values = at::randn(output.sizes(), generator, wide);
  return at::empty_like(output.detach()).copy_(values);
}

/// All that can be seen of a tensor from outside, to prove that tracing changed none of it.
struct Look {
  explicit Look(const Tensor& t)
      : contents(t.is_meta() ? Tensor() : t.detach().clone()),
        version(t.is_inference() ? 0 : t._version()),
        grad(t.is_leaf() ? t.grad() : Tensor()),
        grad_fn(t.grad_fn().get()) {}
  void expect_unchanged(const Tensor& t, const std::string& what) const {
    EXPECT_TRUE(!contents.defined() || at::equal(as_bits(contents), as_bits(t))) << what;
    EXPECT_EQ(version, t.is_inference() ? 0 : t._version()) << what;
    EXPECT_TRUE(!t.is_leaf() || grad.is_same(t.grad())) << what;
    EXPECT_EQ(grad_fn, t.grad_fn().get()) << what;
  }
  Tensor contents;
  int64_t version;
  Tensor grad;
  const void* grad_fn;
};

Tensor random_state() {
  return at::detail::getDefaultCPUGenerator().get_state();
}

/// Where a graph input came from in the scene: an argument or a captured tensor.
Tensor origin(const Scene& scene, const ahead::Graph::Input& input) {
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
      : eager_(make_scene()), traced_(make_scene()) {}

  ahead::JointGraph run() {
    trace();
    run_eager();
    run_graph();
    compare_outputs();
    compare_scene();
    return graph_;
  }

 private:
  void trace() {
    std::vector<Look> looks;
    for (const Tensor& t : traced_.inputs) looks.emplace_back(t);
    for (const Tensor& t : traced_.captured) looks.emplace_back(t);
    const Tensor state = random_state();
    graph_ = ahead::trace_joint(traced_.function, traced_.inputs);
    EXPECT_TRUE(state.equal(random_state())) << "tracing drew random numbers";
    size_t next = 0;
    for (const Tensor& t : traced_.inputs) looks[next++].expect_unchanged(t, "an input");
    for (const Tensor& t : traced_.captured) looks[next++].expect_unchanged(t, "a captured tensor");
    expect_round_trip(graph_);
  }

  void run_eager() {
    torch::manual_seed(kRunSeed);
    outputs_ = eager_.function(eager_.inputs);
    random_state_ = random_state();
  }

  /// The eager tensor behind a forward output of the graph.
  Tensor eager_output(const ahead::Slot& slot) const {
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
        tangents_.push_back(tangent_for(root, input.slot.index));
        roots_.push_back(root);
        args.push_back(tangents_.back());
      }
    }
    torch::manual_seed(kRunSeed);
    results_ = ahead::interpret(graph_, std::move(args));
    EXPECT_TRUE(random_state_.equal(random_state())) << "other random numbers were drawn";
  }

  Tensors eager_gradients(const Tensors& targets) {
    if (roots_.empty() || targets.empty()) return Tensors(targets.size());
    return torch::autograd::grad(roots_, targets, tangents_, /*retain_graph=*/true,
                                 /*create_graph=*/false, /*allow_unused=*/true);
  }

  Tensor differentiation_target(const ahead::Graph::Input& input) const {
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
  ahead::JointGraph graph_;
  Tensors outputs_, results_, roots_, tangents_;
  Tensor random_state_;
};

}  // namespace

ahead::TensorMeta meaningful(ahead::TensorMeta meta) {
  for (size_t dim = 0; dim < meta.sizes.size(); ++dim) {
    if (meta.sizes[dim] <= 1 || meta.numel() == 0) meta.strides[dim] = 1;
  }
  return meta;
}

void expect_same(const std::vector<at::Tensor>& eager, const std::vector<at::Tensor>& compiled) {
  ASSERT_EQ(eager.size(), compiled.size());
  for (size_t i = 0; i < eager.size(); ++i) {
    EXPECT_EQ(tensor_difference(eager[i], compiled[i]), "") << i;
    EXPECT_EQ(eager[i].defined() && eager[i].requires_grad(),
              compiled[i].defined() && compiled[i].requires_grad())
        << i;
  }
}

std::string tensor_difference(const Tensor& expected, const Tensor& actual) {
  if (describe(expected) != describe(actual)) {
    return "expected " + describe(expected) + ", got " + describe(actual);
  }
  if (!expected.defined() || expected.is_meta() || at::equal(as_bits(expected), as_bits(actual)))
    return "";
  return c10::str("expected ", expected, "\ngot ", actual);
}

Tensor as_non_leaf(const Tensor& leaf) {
  return Identity::apply(leaf);
}

size_t count(const ahead::Graph& graph, const std::string& op) {
  size_t found = 0;
  for (const ahead::Node& node : graph.nodes()) found += node.op().name() == op ? 1 : 0;
  return found;
}

ahead::JointGraph expect_like_eager(const std::function<Scene()>& make_scene) {
  return Comparison(make_scene).run();
}
