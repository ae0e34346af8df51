#include "fuzz/draft.h"

namespace ahead::fuzz {
namespace {

bool broadcastable(at::IntArrayRef a, at::IntArrayRef b) {
  for (size_t i = 1; i <= std::min(a.size(), b.size()); ++i) {
    const int64_t left = a[a.size() - i], right = b[b.size() - i];
    if (left != right && left != 1 && right != 1) return false;
  }
  return true;
}

}  // namespace

Filter rank_from(int64_t low, int64_t high) {
  return [low, high](const at::Tensor& tensor) {
    return tensor.dim() >= low && tensor.dim() <= high && tensor.numel() > 0;
  };
}

Filter both(Filter first, Filter second) {
  return [first = std::move(first), second = std::move(second)](const at::Tensor& tensor) {
    return first(tensor) && second(tensor);
  };
}

Filter apart_from(const at::Tensor& other) {
  return [other](const at::Tensor& tensor) { return !tensor.is_alias_of(other); };
}

Filter same_shape_as(const at::Tensor& other) {
  return
      [sizes = other.sizes().vec()](const at::Tensor& tensor) { return tensor.sizes() == sizes; };
}

Filter broadcasts_with(const at::Tensor& other) {
  return [sizes = other.sizes().vec()](const at::Tensor& tensor) {
    return broadcastable(tensor.sizes(), sizes);
  };
}

Filter broadcasts_into(const at::Tensor& other) {
  return [sizes = other.sizes().vec()](const at::Tensor& tensor) {
    return broadcastable(tensor.sizes(), sizes) &&
           at::infer_size(tensor.sizes(), sizes) == at::IntArrayRef(sizes);
  };
}

at::Tensor Draft::take(const Filter& filter) {
  std::vector<Variable> fitting;
  for (size_t i = 0; i < machine_.num_inputs(); ++i) {
    if (filter(machine_.get(input_variable(i)))) fitting.push_back(input_variable(i));
  }
  for (size_t i = 0; i < machine_.num_values(); ++i) {
    const auto variable = static_cast<Variable>(i);
    if (filter(machine_.get(variable))) fitting.push_back(variable);
  }
  if (fitting.empty()) throw NoFit{};
  constexpr size_t recent = 4;
  const bool any_age = fitting.size() <= recent || random.chance(0.5);
  const size_t first = any_age ? 0 : fitting.size() - recent;
  const Variable chosen = fitting[first + random.below(fitting.size() - first)];
  instruction.operands.push_back(chosen);
  return machine_.get(chosen);
}

void Draft::capture(Input input) {
  input.captured = true;
  input.seed = random.next() % 1000;
  instruction.operands.push_back(input_variable(machine_.num_inputs() + captures.size()));
  captures.push_back(std::move(input));
}

void Draft::take_or_capture(at::ScalarType dtype, at::IntArrayRef sizes, const Filter& filter) {
  if (random.chance(0.4)) {
    try {
      take([&](const at::Tensor& tensor) {
        return tensor.scalar_type() == dtype && tensor.sizes() == sizes && filter(tensor);
      });
      return;
    } catch (const NoFit&) {
    }
  }
  Input input;
  input.dtype = dtype;
  input.sizes = sizes.vec();
  input.requires_grad = at::isFloatingType(dtype) && random.chance(0.7);
  capture(std::move(input));
}

int64_t Draft::take_dim(const at::Tensor& tensor) {
  if (tensor.dim() == 0) throw NoFit{};
  const int64_t dim = random.between(0, tensor.dim() - 1);
  add(random.chance(0.3) ? dim - tensor.dim() : dim);
  return dim;
}

const at::Tensor& Draft::operand(size_t index) const {
  return machine_.get(instruction.operands.at(index));
}

const std::vector<Family>& families(bool with_effects) {
  static const std::vector<Family> all = {
      pointwise_family(), binary_family(),   matmul_family(),           reduction_family(),
      view_family(),      mutation_family(), indexed_mutation_family(), shape_mutation_family(),
      shaping_family(),   layer_family(),    random_family(),           autograd_family()};
  static const std::vector<Family> more = [] {
    std::vector<Family> families = all;
    families.push_back(effect_family());
    families.push_back(backward_write_family());
    families.push_back(region_family());
    return families;
  }();
  return with_effects ? more : all;
}

const std::vector<Family>& families_for_call_numbers() {
  static const std::vector<Family> all = [] {
    std::vector<Family> families = fuzz::families();
    families.push_back(size_family());
    return families;
  }();
  return all;
}

}  // namespace ahead::fuzz
