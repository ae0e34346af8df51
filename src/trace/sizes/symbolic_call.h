#pragma once

#include <ATen/WrapDimUtils.h>
#include <ATen/core/ivalue.h>
#include <c10/core/SymInt.h>

#include <string>
#include <vector>

#include "ahead/errors.h"
#include "ahead/graph.h"
#include "trace/sizes/symbolic_layout.h"

namespace ahead::tracing {

/// One call of an operator with sizes that may change, as rules see it.
struct SymbolicCall {
  using Sizes = std::vector<c10::SymInt>;

  const Operator& op;
  const std::vector<c10::IValue>& arguments;
  const std::vector<at::Tensor>& results;  ///< for the sizes for which is traced

  bool has_tensor(size_t index) const {
    return arguments[index].isTensor() && arguments[index].toTensor().defined();
  }
  const at::Tensor& tensor(size_t index) const { return arguments[index].toTensor(); }
  Sizes sizes(size_t index) const { return tensor(index).sym_sizes().vec(); }
  SymbolicLayout layout(size_t index) const { return SymbolicLayout::of(tensor(index)); }
  c10::SymInt integer(size_t index) const { return arguments[index].toSymInt(); }
  int64_t number(size_t index) const { return arguments[index].toInt(); }
  bool flag(size_t index) const { return arguments[index].toBool(); }
  Sizes list(size_t index) const { return arguments[index].toSymIntVector(); }
  std::vector<int64_t> numbers(size_t index) const { return arguments[index].toIntVector(); }

  /// Throws Unsupported.
  [[noreturn]] void refuse(const char* why) const {
    throw Unsupported("trace", op.name() + ": " + why + ", so that sizes cannot change.");
  }
};

/// What the results look like, one layout for each.
using SymbolicRule = std::vector<SymbolicLayout> (*)(const SymbolicCall&);

/// The rule of the operator `aten.<name>`.
struct SymbolicRow {
  const char* name;
  SymbolicRule rule;
};

/// A dimension from the front.
inline size_t wrap_dim(int64_t dim, size_t dims) {
  return static_cast<size_t>(c10::maybe_wrap_dim(dim, static_cast<int64_t>(dims)));
}

/// How many elements there are.
inline c10::SymInt product_of(const std::vector<c10::SymInt>& sizes) {
  c10::SymInt product = 1;
  for (const c10::SymInt& size : sizes) product = product * size;
  return product;
}

}  // namespace ahead::tracing
