#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/record_function.h>

#include <optional>

#include "ahead/graph.h"

/// What LibTorch's RecordFunction tells of operator calls.
namespace ahead::runtime {

/// Calls `visit` with each defined tensor of an argument or result.
template <class Visit>
void for_each_tensor(const c10::IValue& value, Visit&& visit) {
  if (value.isTensor()) {
    if (value.toTensor().defined()) visit(value.toTensor());
  } else if (value.isTensorList()) {
    for (const at::Tensor& tensor : value.toTensorVector()) visit(tensor);
  } else if (value.isOptionalTensorList()) {
    for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector()) {
      if (tensor && tensor->defined()) visit(*tensor);
    }
  }
}

/// The storage of a tensor; null if it has none.
const c10::StorageImpl* storage_of(const at::Tensor& tensor);

/// The operator that is being called; null for anything else that is recorded.
const Operator* operator_of(const at::RecordFunction& call);

}  // namespace ahead::runtime
