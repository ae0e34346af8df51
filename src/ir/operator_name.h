#pragma once

#include <ATen/core/operator_name.h>

#include <string>

namespace ahead {

/// How a graph writes the name of a dispatcher's operator: `aten.add.Tensor` for
/// `aten::add.Tensor`.
std::string printed_name(const c10::OperatorName& name);

}  // namespace ahead
