#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <memory>
#include <vector>

#include "ahead/graph.h"
#include "ir/sizes/layout.h"

/// Layout rules: what an operator's results look like for all sizes. Shape rules and Meta kernels
/// answer for fixed sizes; these answer which of them stay related to which when they change.
namespace ahead::ops {

/// One call of an operator with sizes that may change, as rules see it.
struct LayoutCall {
  const Operator& op;
  const std::vector<c10::IValue>& arguments;
  const std::vector<at::Tensor>& results;  ///< for the sizes for which is traced
  /// Where it is noted what is decided by sizes.
  const std::shared_ptr<SizeGuards>& guards;

  bool has_tensor(size_t index) const {
    return arguments[index].isTensor() && arguments[index].toTensor().defined();
  }
  const at::Tensor& tensor(size_t index) const { return arguments[index].toTensor(); }
  Dims sizes(size_t index) const { return to_dims(tensor(index).sym_sizes()); }
  Layout layout(size_t index) const { return Layout::of(tensor(index)); }
  Dim integer(size_t index) const { return to_dim(arguments[index].toSymInt()); }
  int64_t number(size_t index) const { return arguments[index].toInt(); }
  bool flag(size_t index) const { return arguments[index].toBool(); }
  bool is_none(size_t index) const { return arguments[index].isNone(); }
  Dims list(size_t index) const;
  /// A list of plain numbers, or one such number.
  std::vector<int64_t> numbers(size_t index) const;

  /// Whether the one is equal to the other, or less. The program depends on it from now on.
  bool equal(Dim left, Dim right) const;
  bool less(Dim left, Dim right) const;
  /// The value, on which the program depends from now on, because of `reason`.
  int64_t pin(Dim dim, const char* reason) const;

  /// Throws Unsupported.
  [[noreturn]] void refuse(const char* why) const;
};

/// What the results look like, one layout for each.
using LayoutRule = std::vector<Layout> (*)(const LayoutCall&);

/// The layouts of the results of a call; `is_pointwise` tells what to do without a rule. Throws
/// Unsupported, naming the operator, where they are not known, or not as the results are for the
/// sizes for which is traced.
std::vector<Layout> layouts_of_results(const LayoutCall& call, bool is_pointwise);

}  // namespace ahead::ops
