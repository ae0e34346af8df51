#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/function_schema.h>
#include <ATen/core/ivalue.h>

#include <vector>

/// How the layout of a pointwise result on the CPU differs from what LibTorch's Meta kernels say.
namespace ahead::ops {

/// On the CPU, TensorIterator converts operands to the common dtype before it lays out the result,
/// and a converted operand is packed. Meta kernels do not convert, as GPU kernels do not.
/// Given the arguments of a pointwise operator (meta tensors) and the result of its Meta kernel,
/// replaces the operands that would be converted and have gaps or overlap by packed ones. Returns
/// whether there were any; then the Meta kernel is to be called again with the new arguments.
bool pack_converted_operands(const c10::FunctionSchema& schema, std::vector<c10::IValue>& arguments,
                             const at::Tensor& result);

}  // namespace ahead::ops
