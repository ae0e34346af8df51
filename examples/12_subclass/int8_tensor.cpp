#include "int8_tensor.h"

#include <ATen/ATen.h>

#include <string>

at::Tensor Int8Tensor::make(at::Tensor data, at::Tensor scale) {
  ahead::WrapperLook look = ahead::WrapperLook::of(data);
  look.dtype = scale.scalar_type();
  return ahead::wrap(std::make_shared<const Int8Tensor>(std::move(data), std::move(scale)), look);
}

at::Tensor Int8Tensor::quantize(const at::Tensor& matrix) {
  const at::Tensor scale = matrix.detach().abs().amax({1}, /*keepdim=*/true) / 127;
  return make((matrix.detach() / scale).round().to(at::kChar), scale);
}

at::Tensor Int8Tensor::dequantize(const at::Tensor& tensor) {
  const auto inside = ahead::inside_of<Int8Tensor>(tensor);
  return inside == nullptr ? tensor
                           : inside->data_.to(inside->scale_.scalar_type()) * inside->scale_;
}

std::shared_ptr<const Int8Tensor> Int8Tensor::unflatten(ahead::WrapperParts parts) {
  return std::make_shared<const Int8Tensor>(parts.inner.at(0), parts.inner.at(1));
}

/// The product with this matrix. A scale for each column is taken out of the sum.
at::Tensor Int8Tensor::times(const at::Tensor& left) const {
  const at::Tensor numbers = data_.to(left.scalar_type());
  return scale_.size(0) == 1 ? left.mm(numbers) * scale_ : left.mm(numbers * scale_);
}

bool Int8Tensor::dispatch(const c10::OperatorHandle& op, torch::jit::Stack& stack) const {
  const std::string& name = op.operator_name().name;
  if (name == "aten::t" || name == "aten::detach" || name == "aten::alias") {
    const auto self = ahead::inside_of<Int8Tensor>(stack[0].toTensor());
    const bool turns = name == "aten::t";
    stack = {make(turns ? self->data_.t() : self->data_.detach(),
                  turns ? self->scale_.t() : self->scale_.detach())};
    return true;
  }
  const auto right =
      name == "aten::mm" ? ahead::inside_of<Int8Tensor>(stack[1].toTensor()) : nullptr;
  if (right != nullptr) {
    stack = {right->times(dequantize(stack[0].toTensor()))};
    return true;
  }
  if (op.schema().is_mutable()) return false;
  for (c10::IValue& argument : stack) {
    if (argument.isTensor()) argument = dequantize(argument.toTensor());
  }
  op.callBoxed(stack);
  return true;
}
