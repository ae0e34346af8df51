#pragma once

#include <ATen/core/ivalue.h>

namespace ahead::tracing {

/// Replaces every defined tensor in an operator's argument or result, be it alone, in a list or in
/// a list of optionals, by map(tensor).
template <class Map>
void map_tensors(c10::IValue& value, Map&& map) {
  if (value.isTensor()) {
    if (value.toTensor().defined()) value = c10::IValue(map(value.toTensor()));
  } else if (value.isTensorList()) {
    std::vector<at::Tensor> tensors = value.toTensorVector();
    for (at::Tensor& tensor : tensors) {
      if (tensor.defined()) tensor = map(tensor);
    }
    value = c10::IValue(std::move(tensors));
  } else if (value.isOptionalTensorList()) {
    auto list = value.toOptionalTensorList().copy();
    for (size_t i = 0; i < list.size(); ++i) {
      std::optional<at::Tensor> tensor = list.get(i);
      if (tensor && tensor->defined()) list.set(i, map(*tensor));
    }
    value = c10::IValue(std::move(list));
  }
}

/// Calls visit(tensor) for every defined tensor in an operator's argument or result.
template <class Visit>
void for_each_tensor(const c10::IValue& value, Visit&& visit) {
  if (value.isTensor()) {
    if (value.toTensor().defined()) visit(value.toTensor());
  } else if (value.isTensorList()) {
    for (const at::Tensor& tensor : value.toTensorVector()) {
      if (tensor.defined()) visit(tensor);
    }
  } else if (value.isOptionalTensorList()) {
    for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector()) {
      if (tensor && tensor->defined()) visit(*tensor);
    }
  }
}

}  // namespace ahead::tracing
