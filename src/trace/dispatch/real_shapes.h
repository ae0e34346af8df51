#pragma once

#include "trace/outside.h"

/// The shapes of tensors from outside while a function is traced that changes them in place.
namespace ahead::tracing {

/// How what stands for a tensor from outside lies in that one's storage.
TensorMeta geometry_of(const Lifted& lifted);

/// After an operator changed the shape of a traced tensor in place: user code may ask the real one
/// of which it is the wrapper for its sizes. So the real one gets the shape of the wrapper.
void mirror_shape(const Outside& outside, const at::Tensor& reshaped);

/// Gives real tensors back the shape that they had.
void restore_shapes(const Outside& outside);

/// Throws if a tensor from outside changed its shape both with and without autograd's knowledge.
void check_one_history(const Lifted& reshaped);

}  // namespace ahead::tracing
