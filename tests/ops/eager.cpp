#include "ops/eager.h"

#include <ATen/CPUGeneratorImpl.h>

#include <iomanip>
#include <limits>
#include <sstream>

namespace ahead::samples {
namespace {

constexpr uint64_t run_seed = 4242;
constexpr uint64_t tangent_seed = 977;

/// The identity, as a tensor of the same storage and strides that is neither a leaf nor a view.
class Entry : public torch::autograd::Function<Entry> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& leaf) {
    return at::empty({0}, leaf.options())
        .set_(leaf.storage(), leaf.storage_offset(), leaf.sizes(), leaf.strides());
  }
  static torch::autograd::tensor_list backward(torch::autograd::AutogradContext*,
                                               torch::autograd::tensor_list gradients) {
    return gradients;
  }
};

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
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(tangent_seed + number);
  const auto wide = root.is_complex() ? at::kComplexDouble : at::kDouble;
  const at::Tensor values = at::randn(root.sizes(), generator, wide);
  return at::empty_like(root.detach()).copy_(values);
}

/// All NaNs made equal and the rest as integers, so that `equal` compares bits.
at::Tensor as_bits(const at::Tensor& tensor) {
  at::Tensor plain = tensor.detach().resolve_conj().resolve_neg().contiguous();
  if (plain.is_complex()) plain = at::view_as_real(plain);
  if (!plain.is_floating_point()) return plain;
  plain = plain.masked_fill(plain.isnan(), std::numeric_limits<double>::quiet_NaN());
  switch (plain.element_size()) {
    case 2:
      return plain.view(at::kShort);
    case 4:
      return plain.view(at::kInt);
    default:
      return plain.view(at::kLong);
  }
}

std::string show(const at::Tensor& tensor) {
  if (!tensor.defined()) return "undefined";
  return c10::str(c10::toString(tensor.scalar_type()), tensor.sizes(), " strides ",
                  tensor.strides(), tensor.is_conj() ? " conj" : "", tensor.is_neg() ? " neg" : "");
}

/// Names the first elements that differ; complex ones as pairs.
std::string first_difference(const at::Tensor& expected, const at::Tensor& actual) {
  const at::Tensor differs = at::ne(as_bits(expected), as_bits(actual)).flatten();
  const int64_t count = differs.sum().item<int64_t>(),
                first = differs.to(at::kByte).argmax().item<int64_t>();
  const auto element = [&](const at::Tensor& tensor) {
    at::Tensor plain = tensor.detach().resolve_conj().resolve_neg();
    if (plain.is_complex()) plain = at::view_as_real(plain);
    std::ostringstream text;
    text << std::setprecision(17) << plain.reshape(-1)[first].item<double>();
    return text.str();
  };
  return c10::str(count, " of ", differs.numel(), " elements differ; the first, at ", first,
                  ", is ", element(actual), " instead of ", element(expected));
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
    if (input.wants_grad() && mutated[position]) argument = Entry::apply(argument);
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
  if (show(expected) != show(actual)) return "expected " + show(expected) + ", got " + show(actual);
  if (!expected.defined() || at::equal(as_bits(expected), as_bits(actual))) return "";
  return c10::str(show(expected), ": ", first_difference(expected, actual));
}

}  // namespace ahead::samples
