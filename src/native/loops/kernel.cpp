#include "native/loops/kernel.h"

#include "base/text.h"

namespace ahead::native {
namespace {

constexpr const char* type_names[] = {"f32", "f64", "i64", "i32", "bool"};

int64_t product(const Sizes& sizes) {
  int64_t product = 1;
  for (const int64_t size : sizes) product *= size;
  return product;
}

void append_sizes(std::string& out, const Sizes& sizes) {
  out += '[';
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (i != 0) out += ", ";
    append_int(out, sizes[i]);
  }
  out += ']';
}

}  // namespace

int64_t Kernel::length(const Sum& sum) const {
  if (sum.kind == Sum::Kind::EachColumn) return num_columns();
  if (sum.kind != Sum::Kind::EachElement) return 1;
  const Buffer& into = buffers[static_cast<size_t>(sum.buffer)];
  int64_t last = 0;
  for (size_t i = 0; i < rows.size(); ++i) last += (rows[i] - 1) * into.rows[i];
  for (size_t i = 0; i < columns.size(); ++i) last += (columns[i] - 1) * into.columns[i];
  return last + 1;
}
int64_t Kernel::num_rows() const {
  return product(rows);
}
int64_t Kernel::num_columns() const {
  return product(columns);
}

std::string Kernel::str() const {
  std::string out = "kernel " + name + ": rows ";
  append_sizes(out, rows);
  out += ", columns ";
  append_sizes(out, columns);
  for (size_t i = 0; i < buffers.size(); ++i) {
    const Buffer& buffer = buffers[i];
    out += "\n  b" + std::to_string(i) + (buffer.is_result ? " = result " : " = argument ") +
           std::to_string(buffer.index) + ": " + c10::toString(buffer.dtype) + " ";
    append_sizes(out, buffer.rows);
    append_sizes(out, buffer.columns);
    if (buffer.offset != 0) append_int(out += '+', buffer.offset);
  }
  for (size_t i = 0; i < terms.size(); ++i) {
    const Term& term = terms[i];
    out += "\n  t" + std::to_string(i) + ": " + type_names[static_cast<size_t>(term.type)] +
           (term.by_row      ? term.by_column ? "" : " by row"
            : term.by_column ? " by column"
                             : " one") +
           " = " + traits_of(term.op).name;
    if (term.buffer >= 0) out += " b" + std::to_string(term.buffer);
    if (term.op == Op::Number && is_float(term.type)) append_float(out += ' ', term.number);
    if (term.op == Op::Number && !is_float(term.type)) append_int(out += ' ', term.integer);
    if (term.op == Op::RoundTo) out += std::string(" ") + c10::toString(term.dtype);
    for (const TermId operand : term.operands) out += " t" + std::to_string(operand);
  }
  for (const Store& store : stores)
    out += "\n  b" + std::to_string(store.buffer) + " <- t" + std::to_string(store.term);
  for (const Sum& sum : sums) {
    out += sum.buffer < 0 ? "\n  sum" : "\n  b" + std::to_string(sum.buffer) + " <- sum";
    out += " over rows t" + std::to_string(sum.term);
    if (sum.over >= 0) out += " / sum " + std::to_string(sum.over);
  }
  for (const Bound& bound : bounds) {
    out += "\n  argument " + std::to_string(bound.argument) + " in [0, ";
    append_int(out, bound.size);
    out += ")";
    if (bound.other) append_int(out += " or ", *bound.other);
  }
  return out + "\n";
}

}  // namespace ahead::native
