#pragma once

#include <string>

#include "ops/sample.h"

/// The checks made for every sample. Each returns an empty string if all is well, else a text that
/// names the operator and the sample, says what differs, and shows the graph.
namespace ahead::samples {

/// The sample runs in eager mode, twice with the same result, and its backward does too.
std::string check_eager(const Sample& sample);

/// What the trace says about every result of every node, and about the outputs, is what the real
/// kernels give: sizes, strides, offset, type, device, and which arguments an output aliases.
std::string check_metadata(const Sample& sample);

/// Interpreting the trace gives eager's outputs and mutated arguments, to the bit.
std::string check_values(const Sample& sample);

/// Interpreting the joint trace gives eager's gradients as well, to the bit; what eager refuses to
/// differentiate, the tracer refuses too.
std::string check_gradients(const Sample& sample);

/// The compiled function gives eager's outputs, with their requires_grad and aliases, mutated
/// arguments and gradients, to the bit, on its first call and on a later one. What cannot be traced
/// runs eagerly.
std::string check_compiled(const Sample& sample);

/// With compiled autograd on, the backward gives eager's gradients, to the bit, when it is captured
/// and when it is found again.
std::string check_compiled_autograd(const Sample& sample);

}  // namespace ahead::samples
