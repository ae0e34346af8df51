#include "partition/cost.h"

#include <c10/core/ScalarType.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "ahead/errors.h"
#include "ops/facts/facts.h"

namespace ahead::partition {
namespace {

/// How much arithmetic a processor does in the time it moves a byte.
constexpr double flops_per_byte = 10;
/// What it costs to call a kernel at all.
constexpr double call_overhead = 1024;

std::vector<const TensorMeta*> operand_metas(const Node& node) {
  std::vector<const TensorMeta*> metas;
  node.for_each_operand([&](const Value* value) { metas.push_back(&value->meta); });
  return metas;
}

double numel_of_results(const Node& node) {
  double count = 0;
  for (const Value* result : node.results()) {
    if (result != nullptr) count += static_cast<double>(result->meta.numel());
  }
  return count;
}

double size(const TensorMeta& meta, size_t from_end) {
  return meta.sizes.size() < from_end
             ? 1.0
             : static_cast<double>(meta.sizes[meta.sizes.size() - from_end]);
}

double matmul_flops(const Node& node, const std::vector<const TensorMeta*>& operands) {
  // addmm and its kin take the summand before the factors.
  const TensorMeta& left = *operands[operands.size() > 2 ? 1 : 0];
  return 2 * numel_of_results(node) * size(left, 1);
}

double convolution_flops(const TensorMeta& result, const TensorMeta& weight) {
  const double filters = weight.sizes.empty() ? 1.0 : static_cast<double>(weight.sizes[0]);
  return 2 * static_cast<double>(result.numel()) * static_cast<double>(weight.numel()) /
         std::max(filters, 1.0);
}

double convolution_backward_flops(const Node& node,
                                  const std::vector<const TensorMeta*>& operands) {
  double gradients = 0;
  for (size_t i = 0; i < std::min<size_t>(2, node.results().size()); ++i)
    gradients += node.result(i) != nullptr ? 1 : 0;
  return gradients * convolution_flops(*operands[0], *operands.back());
}

/// One product of queries and keys. A backward takes, before queries and keys, the gradient, which
/// has the size of the queries.
double attention_product_flops(const TensorMeta& query, const TensorMeta& key) {
  return 2 * static_cast<double>(query.numel()) * size(key, 2);
}

double recurrent_flops(const std::vector<const TensorMeta*>& operands) {
  double weights = 0;
  for (size_t i = 1; i < operands.size(); ++i) {
    if (operands[i]->sizes.size() == 2) weights += static_cast<double>(operands[i]->numel());
  }
  const double features = size(*operands[0], 1);
  return 2 * weights * static_cast<double>(operands[0]->numel()) / std::max(features, 1.0);
}

}  // namespace

int64_t storage_bytes(const TensorMeta& meta) {
  int64_t extent = 1;
  for (size_t i = 0; i < meta.sizes.size(); ++i) {
    if (meta.sizes[i] == 0) return 0;
    extent += (meta.sizes[i] - 1) * meta.strides[i];
  }
  return extent * static_cast<int64_t>(c10::elementSize(meta.dtype));
}

double flops(const Node& node) {
  const ops::FlopFormula formula = ops::facts(node.op()).flops;
  const auto operands = operand_metas(node);
  if (formula == ops::FlopFormula::None || operands.empty()) return 0;
  const TensorMeta &first = *operands[0], &second = *operands[operands.size() > 1 ? 1 : 0];
  const auto elements = static_cast<double>(first.numel());
  switch (formula) {
    case ops::FlopFormula::None:
      return 0;
    case ops::FlopFormula::MatMul:
      return matmul_flops(node, operands);
    case ops::FlopFormula::Convolution:
      return node.result() == nullptr ? 0 : convolution_flops(node.result()->meta, second);
    case ops::FlopFormula::ConvolutionBackward:
      return convolution_backward_flops(node, operands);
    case ops::FlopFormula::Attention:
      return 2 * attention_product_flops(first, second);
    case ops::FlopFormula::AttentionBackward:
      return 5 * attention_product_flops(first, operands.size() > 2 ? *operands[2] : second);
    case ops::FlopFormula::Factorisation:
      return elements * size(first, 1);
    case ops::FlopFormula::Fourier:
      return 5 * elements * std::log2(std::max(elements, 2.0));
    case ops::FlopFormula::Recurrent:
      return recurrent_flops(operands);
  }
  return 0;
}

double runtime(const Node& node, const RuntimeEstimator& estimator) {
  if (estimator) {
    const double time = estimator(node);
    if (time >= 0 && std::isfinite(time)) return time;
    throw UserError("partition", node.op().name() + ": its runtime is " + std::to_string(time) +
                                     ". Return a finite number that is not negative.");
  }
  if (ops::facts(node.op()).cost == ops::Cost::Free) return 0;
  double bytes = 0;
  node.for_each_operand(
      [&](const Value* value) { bytes += static_cast<double>(storage_bytes(value->meta)); });
  for (const Value* result : node.results()) {
    if (result != nullptr) bytes += static_cast<double>(storage_bytes(result->meta));
  }
  return call_overhead + std::max(bytes, flops(node) / flops_per_byte);
}

}  // namespace ahead::partition
