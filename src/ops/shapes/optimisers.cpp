#include "ops/shapes/families.h"
#include "ops/shapes/make.h"

namespace ahead::ops::shapes {
namespace {

using at::Tensor;
using at::TensorList;
using OptionalTensor = std::optional<Tensor>;
using List = std::vector<Tensor>;

// The functional forms return a clone of everything the in-place forms write.
List clones(TensorList tensors) {
  List copies;
  copies.reserve(tensors.size());
  for (const Tensor& tensor : tensors) copies.push_back(make_like(tensor));
  return copies;
}

template <class LearningRate>
std::tuple<List, List, List, List, List> adam(TensorList self, TensorList grads,
                                              TensorList averages, TensorList squares,
                                              TensorList max_squares, TensorList, LearningRate,
                                              double, double, double, double, bool, bool,
                                              const OptionalTensor&, const OptionalTensor&) {
  return {clones(self), clones(grads), clones(averages), clones(squares), clones(max_squares)};
}

template <class LearningRate>
std::tuple<List, List, List> sgd(TensorList self, TensorList grads, TensorList momentum, double,
                                 double, LearningRate, double, bool, bool, bool,
                                 const OptionalTensor&, const OptionalTensor&) {
  return {clones(self), clones(grads), clones(momentum)};
}

std::tuple<List, List, List, List> adagrad(TensorList self, TensorList grads, TensorList sums,
                                           TensorList steps, double, double, double, double, bool,
                                           const OptionalTensor&, const OptionalTensor&) {
  return {clones(self), clones(grads), clones(sums), clones(steps)};
}

std::tuple<List, List, List> adagrad_tensor_lr(TensorList self, TensorList grads, TensorList sums,
                                               TensorList, const Tensor&, double, double, double,
                                               bool, const OptionalTensor&, const OptionalTensor&) {
  return {clones(self), clones(grads), clones(sums)};
}

std::tuple<List, Tensor> check_and_unscale(TensorList self, const Tensor& found_inf,
                                           const Tensor&) {
  return {clones(self), make_like(found_inf)};
}

}  // namespace

void add_optimiser_rules(ShapeRules& rules) {
  rules.add("_fused_adam", TORCH_FN(adam<double>));
  rules.add("_fused_adam.tensor_lr", TORCH_FN(adam<const Tensor&>));
  rules.add("_fused_adamw", TORCH_FN(adam<double>));
  rules.add("_fused_adamw.tensor_lr", TORCH_FN(adam<const Tensor&>));
  rules.add("_fused_sgd", TORCH_FN(sgd<double>));
  rules.add("_fused_sgd.tensor_lr", TORCH_FN(sgd<const Tensor&>));
  rules.add("_fused_adagrad", TORCH_FN(adagrad));
  rules.add("_fused_adagrad.tensor_lr", TORCH_FN(adagrad_tensor_lr));
  rules.add("_amp_foreach_non_finite_check_and_unscale", TORCH_FN(check_and_unscale));
}

}  // namespace ahead::ops::shapes
