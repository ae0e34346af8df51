#include "engine/part/part.h"

#include <ATen/ops/tensor.h>

#include <algorithm>

#include "engine/walk/leaf.h"

namespace ahead::engine {
namespace {

/// The same in all but its layout.
bool is_like(const at::Tensor& tensor, const TensorMeta& expected) {
  return is_plain_gradient(tensor) && tensor.scalar_type() == expected.dtype &&
         tensor.device() == expected.device && tensor.requires_grad() == expected.requires_grad;
}

bool fits(const at::Tensor& tensor, const std::optional<TensorMeta>& expected) {
  if (!tensor.defined() || !expected) return tensor.defined() == expected.has_value();
  return is_like(tensor, *expected) && tensor.sizes() == expected->sizes &&
         tensor.strides() == expected->strides;
}

/// The same where sizes change.
bool fits(const at::Tensor& tensor, const Part::Expected& expected, const Backward& backward) {
  if (!tensor.defined() || !expected.gradient)
    return tensor.defined() == expected.gradient.has_value();
  const TensorMeta& meta = *expected.gradient;
  if (!is_like(tensor, meta) || tensor.dim() != static_cast<int64_t>(meta.sizes.size()))
    return false;
  const int64_t* sizes = backward.sizes().data() + backward.sizes_of_place(expected.place);
  int64_t stride = 1;
  for (size_t i = meta.sizes.size(); i-- > 0;) {
    const auto dim = static_cast<int64_t>(i);
    const int64_t expected_stride = expected.is_contiguous ? stride : meta.strides[i].fixed();
    if (tensor.size(dim) != sizes[i] || tensor.stride(dim) != expected_stride) return false;
    stride *= std::max<int64_t>(sizes[i], 1);
  }
  return true;
}

/// Whether hooks unpacked what the part was made for.
bool fits(const Part::Unpacked& expected, const Gradients& gradients,
          const std::vector<int64_t>& sizes) {
  const at::Tensor& tensor = gradients.unpacked(expected.hooked);
  const TensorMeta& meta = expected.tensor;
  if (!tensor.defined() || tensor.key_set().raw_repr() != expected.keys ||
      tensor.scalar_type() != meta.dtype || tensor.device() != meta.device ||
      tensor.requires_grad() != meta.requires_grad ||
      static_cast<size_t>(tensor.dim()) != meta.sizes.size())
    return false;
  for (size_t i = 0; i < meta.sizes.size(); ++i) {
    const auto dim = static_cast<int64_t>(i);
    if (tensor.size(dim) != meta.sizes[i].at(sizes) ||
        tensor.stride(dim) != meta.strides[i].at(sizes))
      return false;
  }
  return true;
}

/// Undefined for what is not read: leaves and what is added to, and for the sizes.
const at::Tensor& argument(const Part::Argument& which, const Gradients& gradients,
                           const Backward& backward) {
  static const at::Tensor none;
  switch (which.kind) {
    case Part::Argument::Kind::Input:
      return backward.inputs()[which.index];
    case Part::Argument::Kind::Gradient:
      return gradients.at(which.index);
    case Part::Argument::Kind::Unpacked:
      return gradients.unpacked(which.index);
    default:
      return none;
  }
}

/// Whether the part was made for a leaf like this, with such a `.grad`.
bool is_for(const Part& part, const Part::Accumulation& accumulation, const Backward& backward) {
  const Step& step = backward.steps()[accumulation.step];
  const at::Tensor& leaf = leaf_of(step);
  const int64_t* sizes = backward.sizes().data() + backward.sizes_of_place(step.first_place);
  const at::IntArrayRef expected(sizes, static_cast<size_t>(leaf.dim()));
  const bool is_same_leaf = takes_gradient(leaf) && leaf.scalar_type() == accumulation.dtype &&
                            leaf.device() == accumulation.device &&
                            leaf.dim() == accumulation.dim && leaf.sizes() == expected;
  if (!is_same_leaf) return false;
  return part.guards == nullptr ? fits(grad_of(step), accumulation.grad.gradient)
                                : fits(grad_of(step), accumulation.grad, backward);
}

/// Whether adding to this leaf's `.grad` could change what the part reads.
bool is_read(const at::Tensor& grad, const Part& part, const Gradients& gradients,
             const Backward& backward) {
  if (!grad.defined() || !grad.has_storage()) return false;
  if (grad.use_count() == 1 && grad.storage().use_count() == 1) return false;
  for (const Part::Argument& which : part.arguments) {
    const at::Tensor& tensor = argument(which, gradients, backward);
    if (tensor.defined() && tensor.is_alias_of(grad)) return true;
  }
  return false;
}

/// The tensor without its history. As detach(), at a fraction of the cost.
at::Tensor data_of(const at::Tensor& leaf) {
  const c10::TensorImpl& impl = *leaf.unsafeGetTensorImpl();
  auto data = c10::make_intrusive<c10::TensorImpl>(
      c10::TensorImpl::VIEW, c10::Storage(impl.storage()), impl.key_set(), impl.dtype());
  data->set_sizes_and_strides(impl.sizes(), impl.strides(), impl.storage_offset());
  return at::Tensor(std::move(data));
}

}  // namespace

bool is_for(const Part& part, const Gradients& gradients, const Backward& backward,
            const std::vector<int64_t>& sizes) {
  if (part.guards != nullptr && !part.guards->hold(sizes)) return false;
  if (!part.fixed_sizes.empty() && part.fixed_sizes != backward.sizes()) return false;
  for (const Part::Expected& expected : part.expected) {
    const at::Tensor& gradient = gradients.at(expected.place);
    if (part.guards == nullptr ? !fits(gradient, expected.gradient)
                               : !fits(gradient, expected, backward))
      return false;
  }
  for (const Part::Unpacked& unpacked : part.unpacked) {
    if (!fits(unpacked, gradients, sizes)) return false;
  }
  for (const Part::Accumulation& accumulation : part.accumulations) {
    if (!accumulation.is_deferred() && !is_for(part, accumulation, backward)) return false;
  }
  for (size_t i = 0; i < part.offsets.size(); ++i) {
    const at::Tensor& tensor = argument(part.arguments[i], gradients, backward);
    if (tensor.defined() && tensor.storage_offset() != part.offsets[i]) return false;
  }
  return true;
}

bool has_new_hooks(const Part& part, const Backward& backward) {
  const std::vector<Step>& steps = backward.steps();
  const bool is_first = part.begin == 1 && !steps[1].hooks.has(Hooks::Before);
  if (is_first && part.unpacked.empty()) return false;
  for (size_t i = part.begin; i < part.end; ++i) {
    if (!(Hooks::of(*steps[i].node) == steps[i].hooks)) return true;
  }
  return false;
}

bool is_unwritten(const Part& part, const Gradients& gradients, const Backward& backward) {
  for (const Part::Argument& which : part.arguments) {
    const bool is_input = which.kind == Part::Argument::Kind::Input;
    if (is_input && !backward.is_unwritten(which.index)) return false;
  }
  for (size_t step : part.adds_to) {
    if (is_read(grad_of(backward.steps()[step]), part, gradients, backward)) return false;
  }
  return true;
}

std::vector<at::Tensor> take_arguments(const Part& part, Gradients& gradients, Backward& backward,
                                       const std::vector<int64_t>& sizes) {
  using Kind = Part::Argument::Kind;
  std::vector<at::Tensor> arguments;
  arguments.reserve(part.arguments.size());
  for (const Part::Argument& argument : part.arguments) {
    if (argument.kind == Kind::Sizes) {
      arguments.push_back(at::tensor(sizes, at::kLong));
    } else if (argument.kind == Kind::Leaf) {
      arguments.push_back(data_of(leaf_of(backward.steps()[argument.index])));
    } else if (argument.kind == Kind::Grad) {
      arguments.push_back(grad_of(backward.steps()[argument.index]));
    } else if (argument.kind == Kind::Gradient) {
      arguments.push_back(std::move(gradients.at(argument.index)));
    } else if (argument.kind == Kind::Unpacked) {
      arguments.push_back(std::move(gradients.unpacked(argument.index)));
    } else {
      at::Tensor& input = backward.inputs()[argument.index];
      arguments.push_back(input.use_count() == 1 ? std::move(input) : input);
    }
  }
  return arguments;
}

}  // namespace ahead::engine
