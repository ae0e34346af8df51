#pragma once

#include "native/loops/term_builder.h"

namespace ahead::native {

/// A term under construction, so that formulas read as formulas: `a / (1 + exp(-a))`. Numbers take
/// the type of the other operand.
struct Formula {
  TermBuilder* builder;
  TermId id;

  Type type() const { return builder->term(id).type; }
  Formula number(double value) const { return {builder, builder->number(type(), value)}; }
  Formula as(Type type) const { return {builder, builder->convert(id, type)}; }
  Formula apply(Op op) const { return {builder, builder->apply(op, type(), {id})}; }
  Formula apply(Op op, Formula other) const {
    return {builder, builder->apply(op, type(), {id, other.id})};
  }
  Formula compare(Op op, Formula other) const {
    return {builder, builder->apply(op, Type::Bool, {id, other.id})};
  }
};

inline Formula operator-(Formula a) {
  return a.apply(Op::Neg);
}

#define AHEAD_BINARY(OP, WORD)                       \
  inline Formula operator OP(Formula a, Formula b) { \
    return a.apply(Op::WORD, b);                     \
  }                                                  \
  inline Formula operator OP(Formula a, double b) {  \
    return a OP a.number(b);                         \
  }                                                  \
  inline Formula operator OP(double a, Formula b) {  \
    return b.number(a) OP b;                         \
  }
AHEAD_BINARY(+, Add)
AHEAD_BINARY(-, Sub)
AHEAD_BINARY(*, Mul)
#undef AHEAD_BINARY
inline Formula operator/(Formula a, Formula b) {
  return {a.builder, a.builder->divide(a.id, b.id)};
}
inline Formula operator/(Formula a, double b) {
  return a / a.number(b);
}
inline Formula operator/(double a, Formula b) {
  return b.number(a) / b;
}

inline Formula operator<(Formula a, Formula b) {
  return a.compare(Op::Less, b);
}
inline Formula operator>(Formula a, Formula b) {
  return b < a;
}
inline Formula operator<=(Formula a, Formula b) {
  return a.compare(Op::LessEqual, b);
}
inline Formula operator>=(Formula a, Formula b) {
  return b <= a;
}
inline Formula operator<(Formula a, double b) {
  return a < a.number(b);
}
inline Formula operator>(Formula a, double b) {
  return a > a.number(b);
}
inline Formula operator<=(Formula a, double b) {
  return a <= a.number(b);
}
inline Formula operator>=(Formula a, double b) {
  return a >= a.number(b);
}
inline Formula equal(Formula a, Formula b) {
  return a.compare(Op::Equal, b);
}
inline Formula operator!(Formula a) {
  return a.apply(Op::Not);
}
inline Formula operator&(Formula a, Formula b) {
  return a.apply(Op::And, b);
}
inline Formula operator|(Formula a, Formula b) {
  return a.apply(Op::Or, b);
}

inline Formula select(Formula condition, Formula yes, Formula no) {
  return {yes.builder, yes.builder->apply(Op::Select, yes.type(), {condition.id, yes.id, no.id})};
}
inline Formula select(Formula condition, Formula yes, double no) {
  return select(condition, yes, yes.number(no));
}
inline Formula select(Formula condition, double yes, Formula no) {
  return select(condition, no.number(yes), no);
}

/// a * b + c; see Op::MultiplyAdd.
inline Formula multiply_add(Formula a, Formula b, Formula c) {
  if (!is_float(a.type())) return a * b + c;
  return {a.builder, a.builder->apply(Op::MultiplyAdd, a.type(), {a.id, b.id, c.id})};
}

inline Formula abs(Formula a) {
  return a.apply(Op::Abs);
}
inline Formula exp(Formula a) {
  return a.apply(Op::Exp);
}
inline Formula expm1(Formula a) {
  return a.apply(Op::Expm1);
}
inline Formula log(Formula a) {
  return a.apply(Op::Log);
}
inline Formula log1p(Formula a) {
  return a.apply(Op::Log1p);
}
inline Formula erf(Formula a) {
  return a.apply(Op::Erf);
}
inline Formula tanh(Formula a) {
  return a.apply(Op::Tanh);
}
inline Formula sigmoid(Formula a) {
  return a.apply(Op::Sigmoid);
}
inline Formula sqrt(Formula a) {
  return a.apply(Op::Sqrt);
}
inline Formula rsqrt(Formula a) {
  return a.apply(Op::Rsqrt);
}
inline Formula sin(Formula a) {
  return a.apply(Op::Sin);
}
inline Formula cos(Formula a) {
  return a.apply(Op::Cos);
}
inline Formula sign(Formula a) {
  return a.apply(Op::Sign);
}
inline Formula maximum(Formula a, Formula b) {
  return a.apply(Op::Maximum, b);
}
inline Formula minimum(Formula a, Formula b) {
  return a.apply(Op::Minimum, b);
}
inline Formula maximum(Formula a, double b) {
  return maximum(a, a.number(b));
}
inline Formula minimum(Formula a, double b) {
  return minimum(a, a.number(b));
}
inline Formula row_sum(Formula a) {
  return a.apply(Op::RowSum);
}
inline Formula row_max(Formula a) {
  return a.apply(Op::RowMax);
}

}  // namespace ahead::native
