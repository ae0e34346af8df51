#pragma once

#include <c10/core/Scalar.h>

#include <initializer_list>

#include "native/loops/kernel.h"

namespace ahead::native {

/// Adds terms to a kernel, equal ones once.
class TermBuilder {
 public:
  /// `strict`: each operation is rounded, and quotients are quotients.
  explicit TermBuilder(Kernel& kernel, bool strict = false) : kernel_(kernel), strict_(strict) {}

  TermId add(Term term);
  TermId number(Type type, const c10::Scalar& number);
  TermId apply(Op op, Type type, std::initializer_list<TermId> operands);
  TermId convert(TermId term, Type type);
  /// What a term is in the column that another one, which is the same in all columns, names.
  TermId at_column(TermId term, TermId column);
  /// The quotient; by a number of ordinary size the product with its reciprocal, which takes a
  /// fraction of the time, unless it is to be strict.
  TermId divide(TermId dividend, TermId divisor);
  const Term& term(TermId id) const { return kernel_.terms[static_cast<size_t>(id)]; }
  Kernel& kernel() { return kernel_; }

 private:
  int32_t picked_buffer(int32_t buffer);

  Kernel& kernel_;
  const bool strict_;
};

}  // namespace ahead::native
