#include "native/print/expressions.h"

#include <cmath>
#include <cstdio>
#include <utility>

#include "native/loops/library_functions.h"
#include "native/print/type_words.h"

namespace ahead::native {

std::string name_of(const char* kind, int64_t index) {
  return kind + std::to_string(index);
}

std::string Expressions::element(size_t sum) const {
  const auto index = static_cast<size_t>(kernel_.sums[sum].buffer);
  const Buffer& into = kernel_.buffers[index];
  std::string place = "0";
  for (size_t axis = 0; axis < into.rows.size(); ++axis) {
    if (into.rows[axis] != 0)
      place += " + r" + std::to_string(axis) + " * " + sizes_.along_rows(index, axis);
  }
  for (size_t axis = 0; axis < into.columns.size(); ++axis) {
    if (into.columns[axis] != 0)
      place += " + j" + std::to_string(axis) + " * " + sizes_.along_columns(index, axis);
  }
  return "a" + std::to_string(sum) + "[" + place + "]";
}

std::string Expressions::store(const std::string& value, int32_t target, bool in_pass) const {
  const Buffer& into = buffer(target);
  const MemoryWords memory = memory_words_of(into.dtype);
  std::string place = name_of("p", target);
  const auto index = static_cast<size_t>(target);
  const std::string word = std::string("store_") + memory.suffix + "(";
  if (!in_pass) return word + place + ", " + value + ", Tail{1});";
  place += outer_columns(index);
  const std::string stride = sizes_.along_columns(index, into.columns.size() - 1);
  const bool is_dense = into.columns.back() == 1;
  place += is_dense ? " + i" : " + i * " + stride;
  return word + place + ", " + value + (is_dense ? ", w);" : ", " + stride + ", w);");
}

/// Where a term is kept from one pass to the next, for the columns at hand.
std::string Expressions::row_buffer(TermId id) const {
  return std::string("(") + words_for(term(id).type).scalar + "*)(scratch + " +
         std::to_string(phases_.row_buffers[static_cast<size_t>(id)]) + " * " +
         sizes_.row_buffer() + ") + " + column();
}

std::string Expressions::keep(TermId id) const {
  return std::string("store_") + words_for(term(id).type).dtype + "(" + row_buffer(id) + ", " +
         t(id) + ", w);";
}

/// What the loops around the innermost one over columns add to a place.
std::string Expressions::outer_columns(size_t index) const {
  const Sizes& columns = kernel_.buffers[index].columns;
  std::string place;
  for (size_t axis = 0; axis + 1 < columns.size(); ++axis) {
    if (columns[axis] != 0)
      place += " + j" + std::to_string(axis) + " * " + sizes_.along_columns(index, axis);
  }
  return place;
}

/// The word that reads the buffer of a load.
std::string Expressions::load_word(const Term& load) const {
  const at::ScalarType dtype = buffer(load.buffer).dtype;
  const bool is_index = load.type == Type::I32 && dtype == at::kLong;
  return std::string("load_") + (is_index ? "index" : memory_words_of(dtype).suffix) + "(";
}

/// Where the elements of a load begin, for the columns that the innermost loop walks.
std::string Expressions::row_start(const Term& load) const {
  const Buffer& from = buffer(load.buffer);
  const auto index = static_cast<size_t>(load.buffer);
  if (!load.by_row && !load.by_column)
    return std::string("(") + memory_words_of(from.dtype).scalar + "*)b[" + std::to_string(index) +
           "]";
  return name_of("p", load.buffer) + outer_columns(index);
}

/// A place is the same for all columns, or is another one in each lane.
std::string Expressions::load_at(const Term& load) const {
  const Buffer& from = buffer(load.buffer);
  const auto index = static_cast<size_t>(load.buffer);
  const TermId place = load.operands[0];
  const std::string apart = sizes_.picked(index);
  const int64_t step = from.columns.empty() ? 0 : from.columns.back();
  const std::string along = sizes_.along_columns(index, from.columns.size() - 1);
  std::string start = row_start(load);
  if (!term(place).by_column) start += " + " + t(place) + "[0] * " + apart;
  if (step != 0) start += " + i * " + along;
  if (term(place).by_column) {
    return load_word(load) + start + ", Places{" + t(place) + ", " + apart + ", " +
           (step == 0 ? "0" : along) + "}, w)";
  }
  if (step == 1) return load_word(load) + start + ", w)";
  return load_word(load) + start + (step == 0 ? ", 0L, Full{})" : ", " + along + ", w)");
}

std::string Expressions::load(const Term& load) const {
  const Buffer& from = buffer(load.buffer);
  const std::string word = load_word(load), place = row_start(load);
  const auto index = static_cast<size_t>(load.buffer);
  if (!load.by_column) return word + place + ", 0L, Full{})";
  if (from.columns.back() == 0) return word + place + ", 0L, Full{})";
  if (from.columns.back() == 1) return word + place + " + i, w)";
  const std::string stride = sizes_.along_columns(index, from.columns.size() - 1);
  return word + place + " + i * " + stride + ", " + stride + ", w)";
}

/// Short numbers are part of the text; others are arguments, so that kernels which differ in them
/// are the same.
std::string Expressions::number(const Term& term) {
  const TypeWords& type = words_for(term.type);
  if (!is_float(term.type)) {
    // What is true has all bits set.
    const int64_t integer = term.type == Type::Bool ? -term.integer : term.integer;
    const std::string text = std::to_string(integer);
    return std::string(type.set) + "(" + text + (type.bytes == 8 ? "L)" : ")");
  }
  const double value = term.number;
  std::string text;
  if (std::fabs(value) <= 8 && std::floor(value * 4) == value * 4) {
    char digits[32];
    std::snprintf(digits, sizeof digits, "%.2f", value);
    text = digits;
    if (value == 0 && std::signbit(value)) text = "-0.0";
  } else {
    text = "d[" + std::to_string(numbers_.size()) + "]";
    numbers_.push_back(value);
  }
  return std::string(type.set) + "((" + type.scalar + ")" + text + ")";
}

std::string Expressions::convert(const Term& to) const {
  const TermId operand = to.operands[0];
  const Type from = term(operand).type;
  if (to.type == Type::Bool) return "mask_i(to_mask(" + t(operand) + "))";
  const std::string value = from == Type::Bool ? "from_mask(" + t(operand) + ")" : t(operand);
  return std::string(words_for(to.type).convert) + "(" + value + ")";
}

std::string Expressions::condition(TermId id, Type type) const {
  return words_for(type).bytes == 8 ? "mask_l(" + t(id) + ")" : t(id);
}

std::string Expressions::comparison(const Term& term, const char* sign) const {
  return "mask_i(" + t(term.operands[0]) + " " + sign + " " + t(term.operands[1]) + ")";
}

std::string Expressions::arithmetic(const Term& term) const {
  const auto operand = [&](size_t i) { return t(term.operands[i]); };
  const auto infix = [&](const char* sign) { return operand(0) + " " + sign + " " + operand(1); };
  switch (term.op) {
    case Op::Add:
      return infix("+");
    case Op::Sub:
      return infix("-");
    case Op::Mul:
      return infix("*");
    case Op::Div:
      return infix("/");
    case Op::Neg:
      return "-" + operand(0);
    case Op::And:
      return infix("&");
    case Op::Or:
      return infix("|");
    case Op::Not:
      return "~" + operand(0);
    case Op::Less:
      return comparison(term, "<");
    case Op::LessEqual:
      return comparison(term, "<=");
    case Op::Equal:
      return comparison(term, "==");
    case Op::Select:
      return "select(" + condition(term.operands[0], term.type) + ", " + operand(1) + ", " +
             operand(2) + ")";
    case Op::RoundTo:
      return (term.dtype == at::kHalf ? "round_f16(" : "round_bf16(") + operand(0) + ")";
    default: {
      static constexpr std::pair<Op, const char*> functions[] = {
          {Op::Abs, "abs"},     {Op::Maximum, "maximum"}, {Op::Minimum, "minimum"},
          {Op::Pow, "pow"},     {Op::Floor, "floor"},     {Op::Ceil, "ceil"},
          {Op::Trunc, "trunc"}, {Op::Round, "round"},     {Op::Sqrt, "sqrt"},
          {Op::Rsqrt, "rsqrt"}, {Op::Sign, "sign"},       {Op::Exp, "exp"},
          {Op::Expm1, "expm1"}, {Op::Log, "log"},         {Op::Log2, "log2"},
          {Op::Log10, "log10"}, {Op::Log1p, "log1p"},     {Op::Erf, "erf"},
          {Op::Tanh, "tanh"},   {Op::Sigmoid, "sigmoid"}, {Op::Sin, "sin"},
          {Op::Cos, "cos"},     {Op::Rounded, "rounded"}, {Op::MultiplyAdd, "multiply_add"},
      };
      for (const auto& [op, name] : functions) {
        if (op != term.op) continue;
        const char* const whose = kernel_.strict && is_by_library(op) ? "library_" : "";
        std::string call = whose + std::string(name) + "(" + operand(0);
        for (size_t i = 1; i < term.operands.size(); ++i) call += ", " + operand(i);
        return call + ")";
      }
      return {};
    }
  }
}

std::string Expressions::of(TermId id, int32_t pass) {
  const Term& own = term(id);
  const int32_t kept = phases_.row_buffers[static_cast<size_t>(id)];
  if (kept >= 0 && phases_.level[static_cast<size_t>(id)] < pass)
    return std::string("load_") + words_for(own.type).dtype + "(" + row_buffer(id) + ", w)";
  if (own.op == Op::Load) return load(own);
  if (own.op == Op::LoadAt) return load_at(own);
  if (own.op == Op::Position) return std::string("iota_i() + (int)(first + ") + column() + ")";
  if (own.op == Op::Number) return number(own);
  return own.op == Op::Convert ? convert(own) : arithmetic(own);
}

}  // namespace ahead::native
