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

/// Arithmetic for sizes that have these values.
struct Formulas {
  c10::ArrayRef<int64_t> sizes;

  double numel(const TensorMeta& meta) const { return static_cast<double>(meta.numel().at(sizes)); }

  double numel_of_results(const Node& node) const {
    double count = 0;
    for (const Value* result : node.results()) {
      if (result != nullptr) count += numel(result->meta);
    }
    return count;
  }

  double size(const TensorMeta& meta, size_t from_end) const {
    return meta.sizes.size() < from_end
               ? 1.0
               : static_cast<double>(meta.sizes[meta.sizes.size() - from_end].at(sizes));
  }

  double matmul(const Node& node, const std::vector<const TensorMeta*>& operands) const {
    // addmm and its kin take the summand before the factors.
    const TensorMeta& left = *operands[operands.size() > 2 ? 1 : 0];
    return 2 * numel_of_results(node) * size(left, 1);
  }

  double convolution(const TensorMeta& result, const TensorMeta& weight) const {
    const double filters =
        weight.sizes.empty() ? 1.0 : static_cast<double>(weight.sizes[0].at(sizes));
    return 2 * numel(result) * numel(weight) / std::max(filters, 1.0);
  }

  double convolution_backward(const Node& node,
                              const std::vector<const TensorMeta*>& operands) const {
    double gradients = 0;
    for (size_t i = 0; i < std::min<size_t>(2, node.results().size()); ++i)
      gradients += node.result(i) != nullptr ? 1 : 0;
    return gradients * convolution(*operands[0], *operands.back());
  }

  /// One product of queries and keys. A backward takes, before queries and keys, the gradient,
  /// which has the size of the queries.
  double attention_product(const TensorMeta& query, const TensorMeta& key) const {
    return 2 * numel(query) * size(key, 2);
  }

  double recurrent(const std::vector<const TensorMeta*>& operands) const {
    double weights = 0;
    for (size_t i = 1; i < operands.size(); ++i) {
      if (operands[i]->sizes.size() == 2) weights += numel(*operands[i]);
    }
    const double features = size(*operands[0], 1);
    return 2 * weights * numel(*operands[0]) / std::max(features, 1.0);
  }
};

}  // namespace

int64_t storage_bytes(const TensorMeta& meta, c10::ArrayRef<int64_t> sizes) {
  int64_t extent = 1;
  for (size_t i = 0; i < meta.sizes.size(); ++i) {
    const int64_t size = meta.sizes[i].at(sizes);
    if (size == 0) return 0;
    extent += (size - 1) * meta.strides[i].at(sizes);
  }
  return extent * static_cast<int64_t>(c10::elementSize(meta.dtype));
}

double flops(const Node& node, c10::ArrayRef<int64_t> sizes) {
  const ops::FlopFormula formula = ops::facts(node.op()).flops;
  const auto operands = operand_metas(node);
  if (formula == ops::FlopFormula::None || operands.empty()) return 0;
  const TensorMeta &first = *operands[0], &second = *operands[operands.size() > 1 ? 1 : 0];
  const Formulas formulas{sizes};
  const double elements = formulas.numel(first);
  switch (formula) {
    case ops::FlopFormula::None:
      return 0;
    case ops::FlopFormula::MatMul:
      return formulas.matmul(node, operands);
    case ops::FlopFormula::Convolution:
      return node.result() == nullptr ? 0 : formulas.convolution(node.result()->meta, second);
    case ops::FlopFormula::ConvolutionBackward:
      return formulas.convolution_backward(node, operands);
    case ops::FlopFormula::Attention:
      return 2 * formulas.attention_product(first, second);
    case ops::FlopFormula::AttentionBackward:
      return 5 * formulas.attention_product(first, operands.size() > 2 ? *operands[2] : second);
    case ops::FlopFormula::Factorisation:
      return elements * formulas.size(first, 1);
    case ops::FlopFormula::Fourier:
      return 5 * elements * std::log2(std::max(elements, 2.0));
    case ops::FlopFormula::Recurrent:
      return formulas.recurrent(operands);
  }
  return 0;
}

double runtime(const Node& node, const RuntimeEstimator& estimator, c10::ArrayRef<int64_t> sizes) {
  if (estimator) {
    const double time = estimator(node);
    if (time >= 0 && std::isfinite(time)) return time;
    throw UserError("partition", node.op().name() + ": its runtime is " + std::to_string(time) +
                                     ". Return a finite number that is not negative.");
  }
  if (ops::facts(node.op()).cost == ops::Cost::Free) return 0;
  double bytes = 0;
  node.for_each_operand(
      [&](const Value* value) { bytes += static_cast<double>(storage_bytes(value->meta, sizes)); });
  for (const Value* result : node.results()) {
    if (result != nullptr) bytes += static_cast<double>(storage_bytes(result->meta, sizes));
  }
  return call_overhead + std::max(bytes, flops(node, sizes) / flops_per_byte);
}

}  // namespace ahead::partition
