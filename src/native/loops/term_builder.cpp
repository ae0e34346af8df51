#include "native/loops/term_builder.h"

#include <cmath>

#include "ahead/errors.h"

namespace ahead::native {

TermId TermBuilder::add(Term term) {
  for (const TermId operand : term.operands) {
    term.by_row |= this->term(operand).by_row;
    term.by_column |= this->term(operand).by_column;
  }
  if (is_row_reduction(term.op)) {
    term.by_row = true;
    term.by_column = false;
  }
  std::vector<Term>& terms = kernel_.terms;
  for (size_t i = terms.size(); i-- > 0;) {
    if (terms[i] == term) return static_cast<TermId>(i);
  }
  terms.push_back(std::move(term));
  return static_cast<TermId>(terms.size()) - 1;
}

TermId TermBuilder::number(Type type, const c10::Scalar& number) {
  Term term;
  term.type = type;
  const bool is_whole = number.isIntegral(/*includeBool=*/true);
  // As the type has it, since it may be converted to another one.
  switch (type) {
    case Type::F64:
      term.number = is_whole ? static_cast<double>(number.toLong()) : number.toDouble();
      break;
    case Type::F32:
      term.number =
          is_whole ? static_cast<float>(number.toLong()) : static_cast<float>(number.toDouble());
      break;
    case Type::I64:
      term.integer = number.toLong();
      break;
    case Type::I32:
      term.integer = static_cast<int32_t>(number.toLong());
      break;
    case Type::Bool:
      term.integer = is_whole ? number.toLong() != 0 : number.toDouble() != 0;
      break;
  }
  return add(std::move(term));
}

TermId TermBuilder::apply(Op op, Type type, std::initializer_list<TermId> operands) {
  Term term;
  term.op = op;
  term.type = type;
  term.operands = operands;
  const TermId made = add(std::move(term));
  return strict_ && op == Op::Mul && is_float(type) ? apply(Op::Rounded, type, {made}) : made;
}

TermId TermBuilder::divide(TermId dividend, TermId divisor) {
  const Term& by = term(divisor);
  const Type type = term(dividend).type;
  const double size = std::fabs(by.number);
  if (!strict_ && by.op == Op::Number && is_float(type) && size > 1e-30 && size < 1e30)
    return apply(Op::Mul, type, {dividend, number(type, 1 / by.number)});
  return apply(Op::Div, type, {dividend, divisor});
}

TermId TermBuilder::convert(TermId id, Type type) {
  const Term& from = term(id);
  if (from.type == type) return id;
  // Infinity is no whole number: what becomes of it is the processor's to say.
  const bool is_safe = is_float(type) || type == Type::Bool || !is_float(from.type);
  if (from.op == Op::Number && from.type != Type::Bool && is_safe)
    return number(type, is_float(from.type) ? c10::Scalar(from.number) : c10::Scalar(from.integer));
  return apply(Op::Convert, type, {id});
}

/// The buffer that begins where a row of another one does, and whose columns are picked.
int32_t TermBuilder::picked_buffer(int32_t index) {
  Buffer picked = kernel_.buffers[static_cast<size_t>(index)];
  const Sizes apart = picked.columns;
  for (size_t i = apart.size(); i-- > 1;) {
    if (apart[i - 1] != apart[i] * kernel_.columns[i])
      throw InternalError("native", "columns of a tensor are not one after the other.");
  }
  picked.picked = apart.back();
  picked.columns.assign(apart.size(), 0);
  std::vector<Buffer>& known = kernel_.buffers;
  for (size_t i = 0; i < known.size(); ++i) {
    if (known[i] == picked) return static_cast<int32_t>(i);
  }
  known.push_back(std::move(picked));
  return static_cast<int32_t>(known.size()) - 1;
}

TermId TermBuilder::at_column(TermId id, TermId column) {
  Term term = this->term(id);
  if (!term.by_column) return id;
  if (term.op == Op::Position) return column;
  if (term.op == Op::LoadAt)
    throw InternalError("native", "a column is picked of what is picked by columns.");
  if (term.op == Op::Load) {
    term.op = Op::LoadAt;
    term.buffer = picked_buffer(term.buffer);
    term.operands = {column};
  } else {
    for (TermId& operand : term.operands) operand = at_column(operand, column);
  }
  term.by_column = false;
  return add(std::move(term));
}

}  // namespace ahead::native
