#pragma once

#include <ATen/core/Tensor.h>

/// For the few rules that ask LibTorch itself which kernel it would choose: its choosers look at
/// the device of their arguments, which a meta tensor does not tell.
namespace ahead::ops::shapes {

/// A tensor with the metadata of `meta` that says it is on rule_device(). It has no memory: only
/// functions that read nothing but metadata may see it. Undefined stays undefined.
at::Tensor as_on_device(const at::Tensor& meta);

}  // namespace ahead::ops::shapes
