#include "fuzz/input.h"

#include <ATen/CPUGeneratorImpl.h>
#include <torch/csrc/autograd/variable.h>

#include <numeric>

#include "ahead/two_tensor.h"
#include "fuzz/random.h"

namespace ahead::fuzz {
namespace {

using torch::autograd::impl::gradient_edge;

/// Where the elements lie in a flat storage.
struct Placement {
  std::vector<int64_t> strides;
  int64_t offset = 0;
  int64_t length = 0;
};

Placement place(const Input& input) {
  const size_t rank = input.sizes.size();
  Placement result{std::vector<int64_t>(rank, 0), 0, 0};
  int64_t stride = input.layout == Layout::Gapped ? 2 : 1;
  for (size_t i = 0; i < rank; ++i) {
    const size_t dim = input.layout == Layout::Transposed ? i : rank - 1 - i;
    if (input.layout == Layout::Expanded && dim == 0) continue;
    result.strides[dim] = stride;
    stride *= std::max<int64_t>(input.sizes[dim], 1);
  }
  if (input.layout == Layout::Gapped) result.offset = 3;
  // Aligned as new memory is: how eager rounds matrix products depends on it.
  if (input.layout == Layout::Offset) result.offset = 32;
  result.length = result.offset + stride + 1;
  return result;
}

at::Tensor random_contents(const Input& input, at::IntArrayRef sizes) {
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(input.seed + 1);
  if (input.dtype == at::kBool) return at::randint(0, 2, sizes, generator, at::kBool);
  if (input.dtype == at::kLong) return at::randint(-3, 6, sizes, generator, at::kLong);
  const at::Tensor numbers = at::randn(sizes, generator, at::kDouble);
  if (input.noise == 0) return numbers.to(input.dtype);
  // In 16 bits the neighbour is far enough.
  const bool is_narrow = input.dtype == at::kBFloat16 || input.dtype == at::kHalf;
  const double unit = is_narrow ? 0x1p-14 : 0x1p-23;
  return (numbers * (1 + input.noise * unit * at::randn(sizes, generator, at::kDouble)))
      .to(input.dtype);
}

MadeInput make(const Input& input);

MadeInput make_wrapper(const Input& input) {
  Input plain = input;
  plain.wrapper = plain.requires_grad = false;
  const at::Tensor first = make(plain).tensor;
  plain.seed += 1000;
  at::Tensor tensor = TwoTensor::make(first, make(plain).tensor);
  if (!input.requires_grad) return {tensor, {}};
  const at::Tensor leaf = tensor.requires_grad_();
  if (input.origin != Origin::Leaf) tensor = tensor.mul(1);
  return {tensor, gradient_edge(tensor), false, leaf};
}

MadeInput make(const Input& input) {
  if (input.wrapper) return make_wrapper(input);
  const Placement placement = place(input);
  // The gaps have contents too, so that reading them shows.
  at::Tensor flat = random_contents(input, {placement.length});
  auto placed = [&](const at::Tensor& storage) {
    return storage.as_strided(input.sizes, placement.strides, placement.offset);
  };
  if (input.origin == Origin::ViewOfComputed && input.requires_grad) {
    const at::Tensor computed = flat.requires_grad_().mul(1);
    return {placed(computed), gradient_edge(computed), true, flat};
  }
  at::Tensor tensor = placed(flat).variable_data();
  if (!input.requires_grad) return {tensor, {}};
  const at::Tensor leaf = tensor.requires_grad_();
  if (input.origin == Origin::Computed) tensor = tensor.mul(1);
  return {tensor, gradient_edge(tensor), false, leaf};
}

std::string list_of(const std::vector<int64_t>& values) {
  std::string text;
  for (int64_t value : values) text += (text.empty() ? "" : ", ") + std::to_string(value);
  return "{" + text + "}";
}

const char* name_of(Layout layout) {
  switch (layout) {
    case Layout::Contiguous:
      return "Contiguous";
    case Layout::Offset:
      return "Offset";
    case Layout::Transposed:
      return "Transposed";
    case Layout::Gapped:
      return "Gapped";
    case Layout::Expanded:
      return "Expanded";
  }
  return "";
}

}  // namespace

std::string Input::str() const {
  if (same_as >= 0) return "x" + std::to_string(same_as);
  if (shares_memory_with >= 0) {
    return "sharing_memory_with(x" + std::to_string(shares_memory_with) + ")";
  }
  if (view_of >= 0) return "view_of(x" + std::to_string(view_of) + ")";
  std::string text = "make_input({";
  if (dtype != at::kFloat) text += std::string(".dtype = at::k") + c10::toString(dtype) + ", ";
  text += ".sizes = " + list_of(sizes);
  if (layout != Layout::Contiguous) text += std::string(", .layout = Layout::") + name_of(layout);
  if (origin == Origin::Computed) text += ", .origin = Origin::Computed";
  if (origin == Origin::ViewOfComputed) text += ", .origin = Origin::ViewOfComputed";
  if (requires_grad) text += ", .requires_grad = true";
  if (wrapper) text += ", .wrapper = true";
  return text + ", .seed = " + std::to_string(seed) + "})";
}

at::Tensor MadeInput::gradient(const at::Tensor& arriving) const {
  if (!arriving.defined() || !through_view) return arriving;
  return arriving.contiguous().as_strided(tensor.sizes(), tensor.strides(),
                                          tensor.storage_offset());
}

std::vector<MadeInput> make_inputs(const std::vector<Input>& inputs,
                                   const std::vector<MadeInput>& before) {
  std::vector<MadeInput> made;
  made.reserve(inputs.size());
  for (const Input& input : inputs) {
    if (input.captured && !before.empty()) {
      made.push_back(before.at(made.size()));
    } else if (input.same_as >= 0) {
      made.push_back(made.at(static_cast<size_t>(input.same_as)));
    } else if (input.shares_memory_with >= 0) {
      const at::Tensor& other = made.at(static_cast<size_t>(input.shares_memory_with)).tensor;
      made.push_back({sharing_memory_with(other), {}});
    } else if (input.view_of >= 0) {
      made.push_back({view_of(made.at(static_cast<size_t>(input.view_of)).tensor), {}});
    } else {
      made.push_back(make(input));
    }
  }
  return made;
}

at::Tensor make_input(const Input& input) {
  return make(input).tensor;
}

at::Tensor sharing_memory_with(const at::Tensor& tensor) {
  at::Tensor same = tensor.detach();
  return same.dim() == 0 ? same : same.narrow(0, 0, (same.size(0) + 1) / 2);
}

at::Tensor view_of(const at::Tensor& tensor) {
  if (tensor.dim() == 0 || tensor.size(0) < 2) return tensor.view(tensor.sizes());
  return tensor.narrow(0, 1, tensor.size(0) - 1);
}

}  // namespace ahead::fuzz
