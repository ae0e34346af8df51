#pragma once

#include <ATen/core/ivalue.h>
#include <c10/core/SymFloat.h>
#include <c10/core/SymInt.h>
#include <c10/util/ArrayRef.h>

#include <cstdint>
#include <memory>

#include "ahead/dim.h"
#include "ir/sizes/size_expression.h"
#include "ir/sizes/size_guards.h"

/// Constants of graphs that are made of sizes.
namespace ahead {

/// The integers as they stand among the arguments of a node; with guards, see with_guards().
c10::IValue to_constant(const Dims& dims, const std::shared_ptr<SizeGuards>& guards = nullptr);

/// The value of a number in the run that is being written down, on which nothing depends then.
int64_t peek(const c10::SymInt& size);
double peek(const c10::SymFloat& number);

/// Whether a constant of a graph is made of sizes, itself or in a list: an integer, or a
/// floating-point number.
bool has_sizes(const c10::IValue& constant);
/// Whether decisions by the sizes that a constant is made of are noted there.
bool are_noted_by(const c10::IValue& constant, const SizeGuards* guards);
/// The constant for these sizes. Throws UserError if there are too few of them.
c10::IValue with_sizes(const c10::IValue& constant, c10::ArrayRef<int64_t> sizes);
/// The same for the sizes of the run that is being written down.
c10::IValue with_peeked_sizes(const c10::IValue& constant);
/// The constant where each size is what stands for it, which may be an expression over other sizes.
c10::IValue with_sizes(const c10::IValue& constant, c10::ArrayRef<SizeExpression> sizes);
/// The constant as LibTorch's formulas take it, which note there what they decide.
c10::IValue with_guards(const c10::IValue& constant, const std::shared_ptr<SizeGuards>& guards);

}  // namespace ahead
