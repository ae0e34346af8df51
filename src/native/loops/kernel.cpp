#include "native/loops/kernel.h"

#include <cmath>
#include <cstring>

#include "ahead/errors.h"
#include "base/text.h"

namespace ahead::native {
namespace {

constexpr OpTraits traits[] = {
    {"load", 1},    {"number", 0},  {"position", 2},   {"load_at", 8},  {"add", 1},
    {"sub", 1},     {"mul", 1},     {"div", 5},        {"neg", 1},      {"abs", 1},
    {"max", 2},     {"min", 2},     {"pow", 60},       {"floor", 1},    {"ceil", 1},
    {"trunc", 1},   {"round", 1},   {"sqrt", 6},       {"rsqrt", 10},   {"sign", 3},
    {"exp", 15},    {"expm1", 25},  {"log", 20},       {"log2", 20},    {"log10", 20},
    {"log1p", 25},  {"erf", 25},    {"tanh", 20},      {"sigmoid", 18}, {"sin", 25},
    {"cos", 25},    {"less", 1},    {"less_equal", 1}, {"equal", 1},    {"and", 1},
    {"or", 1},      {"not", 1},     {"select", 1},     {"convert", 1},  {"round_to", 4},
    {"rounded", 0}, {"multiply_add", 1}, {"row_sum", 1}, {"row_max", 2}, {"row_min", 2},
};
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

const OpTraits& traits_of(Op op) {
  return traits[static_cast<size_t>(op)];
}

std::optional<Type> compute_type(at::ScalarType dtype) {
  switch (dtype) {
    case at::kFloat:
    case at::kBFloat16:
    case at::kHalf:
      return Type::F32;
    case at::kDouble:
      return Type::F64;
    case at::kLong:
      return Type::I64;
    case at::kInt:
      return Type::I32;
    case at::kBool:
      return Type::Bool;
    default:
      return std::nullopt;
  }
}

bool Term::operator==(const Term& other) const {
  return op == other.op && type == other.type && dtype == other.dtype &&
         operands == other.operands && std::memcmp(&number, &other.number, sizeof number) == 0 &&
         integer == other.integer && buffer == other.buffer;
}

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
