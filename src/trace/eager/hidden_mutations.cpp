#include "trace/eager/hidden_mutations.h"

#include <ATen/FunctionalTensorWrapper.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/_batch_norm_with_update.h>
#include <ATen/ops/_native_batch_norm_legit.h>
#include <ATen/ops/cudnn_batch_norm.h>
#include <ATen/ops/native_batch_norm.h>

#include "ahead/errors.h"

namespace ahead::tracing {
namespace {

namespace functional = at::functionalization::impl;
using Results = std::tuple<at::Tensor, at::Tensor, at::Tensor>;
using MoreResults = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>;
using OptionalTensor = std::optional<at::Tensor>;

at::Tensor unwrap(const at::Tensor& tensor) {
  if (!tensor.defined() || !functional::isFunctionalTensor(tensor)) return tensor;
  functional::sync(tensor);
  return functional::from_functional_tensor(tensor);
}

OptionalTensor unwrap(const OptionalTensor& tensor) {
  return tensor ? OptionalTensor(unwrap(*tensor)) : std::nullopt;
}

at::Tensor wrap(const at::Tensor& tensor) {
  return tensor.defined() ? functional::to_functional_tensor(tensor) : tensor;
}

bool is_functional(const OptionalTensor& tensor) {
  return tensor && tensor->defined() && functional::isFunctionalTensor(*tensor);
}

/// Training redirects to the operator that admits its mutation, which LibTorch functionalises.
Results native_batch_norm(const at::Tensor& input, const OptionalTensor& weight,
                          const OptionalTensor& bias, const OptionalTensor& running_mean,
                          const OptionalTensor& running_var, bool training, double momentum,
                          double eps) {
  if (training && is_functional(running_mean) && is_functional(running_var)) {
    at::Tensor mean = *running_mean, var = *running_var;
    return at::_native_batch_norm_legit(input, weight, bias, mean, var, training, momentum, eps);
  }
  const at::Tensor input_value = unwrap(input);
  const OptionalTensor weight_value = unwrap(weight), bias_value = unwrap(bias);
  const OptionalTensor mean_value = unwrap(running_mean), var_value = unwrap(running_var);
  at::AutoDispatchSkipFunctionalize below;
  auto [out, mean, inverse_std] = at::native_batch_norm(
      input_value, weight_value, bias_value, mean_value, var_value, training, momentum, eps);
  if (!functional::isFunctionalTensor(input)) return {out, mean, inverse_std};
  return {wrap(out), wrap(mean), wrap(inverse_std)};
}

/// Training redirects to the operator that admits its mutation, for which LibTorch chooses cuDNN
/// under the conditions under which at::batch_norm does.
MoreResults cudnn_batch_norm(const at::Tensor& input, const at::Tensor& weight,
                             const OptionalTensor& bias, const OptionalTensor& running_mean,
                             const OptionalTensor& running_var, bool training, double momentum,
                             double eps) {
  const bool updates = training && is_functional(running_mean) && is_functional(running_var);
  if (updates && input.is_cuda()) {
    at::Tensor mean = *running_mean, var = *running_var;
    return at::_batch_norm_with_update(input, weight, bias, mean, var, momentum, eps);
  }
  const at::Tensor input_value = unwrap(input), weight_value = unwrap(weight);
  const OptionalTensor bias_value = unwrap(bias);
  const OptionalTensor mean_value = unwrap(running_mean), var_value = unwrap(running_var);
  at::AutoDispatchSkipFunctionalize below;
  auto [out, mean, inverse_std, reserve] = at::cudnn_batch_norm(
      input_value, weight_value, bias_value, mean_value, var_value, training, momentum, eps);
  if (!functional::isFunctionalTensor(input)) return {out, mean, inverse_std, reserve};
  return {wrap(out), wrap(mean), wrap(inverse_std), wrap(reserve)};
}

/// On ROCm only, where nothing of this was tried: better refused than wrong.
Results miopen_batch_norm(const at::Tensor&, const at::Tensor&, const OptionalTensor&,
                          const OptionalTensor&, const OptionalTensor&, bool, double, double) {
  throw Unsupported("trace",
                    "miopen_batch_norm: it writes to its statistics without saying so. Disable "
                    "MIOpen for the trace (at::globalContext().setUserEnabledCuDNN(false)).");
}

struct HiddenMutation {
  const char* name;
  torch::CppFunction (*kernel)();  ///< made for a registration, which uses it up
  const char* instead;
};

constexpr HiddenMutation hidden_mutations[] = {
    {"native_batch_norm", [] { return torch::CppFunction(TORCH_FN(native_batch_norm)); },
     "in training traced as `_native_batch_norm_legit`"},
    {"cudnn_batch_norm", [] { return torch::CppFunction(TORCH_FN(cudnn_batch_norm)); },
     "in training traced as `_batch_norm_with_update`"},
    {"miopen_batch_norm", [] { return torch::CppFunction(TORCH_FN(miopen_batch_norm)); },
     "refused (`Unsupported`)"},
};

}  // namespace

void register_hidden_mutations(torch::Library& functionalize) {
  for (const HiddenMutation& entry : hidden_mutations)
    functionalize.impl(entry.name, entry.kernel());
}

Departures hidden_mutation_departures() {
  Departures all;
  for (const HiddenMutation& entry : hidden_mutations) {
    all.push_back({entry.name, "hidden_mutations", entry.instead,
                   "it writes to its running statistics, though its schema does not say so"});
  }
  return all;
}

}  // namespace ahead::tracing
