#include "ops/eager.h"

#include "support/eager.h"

namespace ahead::samples {
namespace {

constexpr uint64_t run_seed = 4242;
constexpr uint64_t tangent_seed = 977;

struct Facts {
  explicit Facts(const at::Tensor& tensor)
      : version(tensor._version()), sizes(tensor.sizes().vec()), strides(tensor.strides().vec()) {}
  bool operator==(const Facts& other) const {
    return version == other.version && sizes == other.sizes && strides == other.strides;
  }
  uint64_t version;
  std::vector<int64_t> sizes, strides;
};

EagerRun run(const Sample& sample, const Fn& function, Tensors arguments) {
  EagerRun result;
  std::vector<Facts> before(arguments.begin(), arguments.end());
  seed(sample);
  result.outputs = function(arguments);
  for (size_t i = 0; i < arguments.size(); ++i) {
    result.mutated.push_back(!(before[i] == Facts(arguments[i])));
  }
  result.arguments = std::move(arguments);
  return result;
}

/// In the layout that at::empty_like gives for the root, as the tracer expects it.
at::Tensor make_tangent(const at::Tensor& root, uint64_t number) {
  return random_tangent(at::empty_like(root.detach()), tangent_seed + number);
}

bool nearly_equal(const at::Tensor& expected, const at::Tensor& actual) {
  const bool wide =
      expected.scalar_type() == at::kDouble || expected.scalar_type() == at::kComplexDouble;
  const double tolerance = wide ? 1e-13 : expected.element_size() == 2 ? 1e-2 : 1e-5;
  return at::allclose(expected, actual, tolerance, tolerance, /*equal_nan=*/true);
}

}  // namespace

void seed(const Sample& sample) {
  if (sample.random) torch::manual_seed(run_seed);
}

EagerRun run_eager(const Sample& sample) {
  return run(sample, sample.make_function(), sample.make_arguments());
}

DifferentiableArguments make_differentiable_arguments(const Sample& sample,
                                                      const std::vector<bool>& mutated) {
  DifferentiableArguments result{sample.make_arguments(), {}};
  for (const Input& input : sample.inputs) {
    if (input.is_captured()) continue;
    const size_t position = result.leaves.size();
    at::Tensor& argument = result.arguments[position];
    result.leaves.push_back(argument.requires_grad_(input.wants_grad()));
    if (input.wants_grad() && mutated[position]) argument = as_non_leaf(argument);
  }
  return result;
}

EagerRun run_eager_with_gradients(const Sample& sample) {
  return run_with_gradients(sample, sample.make_function());
}

EagerRun run_with_gradients(const Sample& sample, const Fn& function) {
  const std::vector<bool> mutated = run_eager(sample).mutated;
  auto [arguments, leaves] = make_differentiable_arguments(sample, mutated);
  EagerRun result = run(sample, function, std::move(arguments));
  Tensors roots = result.outputs;
  for (size_t i = 0; i < mutated.size(); ++i) {
    if (mutated[i]) roots.push_back(result.arguments[i]);
  }
  Tensors used_roots, used_tangents, used_leaves;
  for (size_t i = 0; i < roots.size(); ++i) {
    const bool differentiable = roots[i].defined() && roots[i].requires_grad();
    result.tangents.push_back(differentiable ? make_tangent(roots[i], i) : at::Tensor());
    if (!differentiable) continue;
    used_roots.push_back(roots[i]);
    used_tangents.push_back(result.tangents.back());
  }
  for (const at::Tensor& leaf : leaves) {
    if (leaf.requires_grad()) used_leaves.push_back(leaf);
  }
  Tensors found(used_leaves.size());
  if (!used_roots.empty() && !used_leaves.empty()) {
    found = torch::autograd::grad(used_roots, used_leaves, used_tangents, /*retain_graph=*/false,
                                  /*create_graph=*/false, /*allow_unused=*/true);
  }
  auto next = found.begin();
  for (const at::Tensor& leaf : leaves) {
    result.gradients.push_back(leaf.requires_grad() ? *next++ : at::Tensor());
  }
  return result;
}

bool aliases_mutated_argument(const EagerRun& run, size_t index) {
  for (size_t i = 0; i < run.arguments.size(); ++i) {
    if (run.mutated[i] && run.outputs[index].defined() &&
        run.outputs[index].is_alias_of(run.arguments[i])) {
      return true;
    }
  }
  return false;
}

std::string difference(const at::Tensor& expected, const at::Tensor& actual, bool rounds) {
  if (rounds && expected.defined() && actual.defined()) {
    const bool same = expected.sizes() == actual.sizes() && expected.dtype() == actual.dtype();
    if (same && nearly_equal(expected.detach(), actual.detach())) return "";
  }
  return tensor_difference(expected, actual, CompareLayout::EveryStride);
}

}  // namespace ahead::samples
