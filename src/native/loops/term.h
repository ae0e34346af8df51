#pragma once

#include <c10/core/ScalarType.h>
#include <c10/util/SmallVector.h>

#include <cstdint>
#include <optional>

namespace ahead::native {

/// What a kernel computes with. Narrow floating point numbers are read as F32.
enum class Type : uint8_t { F32, F64, I64, I32, Bool };

/// The type in which values of a dtype are computed with; nothing if kernels do not know it.
std::optional<Type> compute_type(at::ScalarType dtype);
inline bool is_float(Type type) {
  return type == Type::F32 || type == Type::F64;
}

/// What is done with operands. Arithmetic is of the term's type.
enum class Op : uint8_t {
  // Leaves.
  Load,      ///< an element of a buffer
  Number,    ///< Term::number
  Position,  ///< of the column among all columns of the row; of type I32
  LoadAt,    ///< an element of a buffer, at the place along one more dimension that the operand,
             ///< of type I32, names
  // Arithmetic.
  Add,
  Sub,
  Mul,
  Div,
  Neg,
  Abs,
  Maximum,
  Minimum,
  Pow,
  Floor,
  Ceil,
  Trunc,
  Round,
  Sqrt,
  Rsqrt,
  Sign,
  Exp,
  Expm1,
  Log,
  Log2,
  Log10,
  Log1p,
  Erf,
  Tanh,
  Sigmoid,
  Sin,
  Cos,
  // Comparisons of operands of one type, and logic; of type Bool.
  Less,
  LessEqual,
  Equal,
  And,
  Or,
  Not,
  // Other.
  Select,       ///< the second operand where the first is true, else the third
  Convert,      ///< the operand in the term's type, as C++ converts
  RoundTo,      ///< the operand, rounded to what Term::dtype can hold
  Rounded,      ///< a product, rounded before anything is added to it
  MultiplyAdd,  ///< the product of two operands and the third's sum, rounded once where ATen's code
                ///< for this processor rounds once
  // Along the columns of a row.
  RowSum,
  RowMax,
  RowMin,
};

/// The name of an operation, and what computing it costs, in additions.
struct OpTraits {
  const char* name;
  int cost;
};
const OpTraits& traits_of(Op op);
inline bool is_row_reduction(Op op) {
  return op >= Op::RowSum;
}

using TermId = int32_t;

/// One value of a kernel: for each row and column, for each row, for each column, or the same
/// everywhere.
struct Term {
  Op op = Op::Number;
  Type type = Type::F32;
  at::ScalarType dtype = at::kFloat;  ///< RoundTo
  c10::SmallVector<TermId, 3> operands;
  double number = 0;                       ///< Number of a floating point type
  int64_t integer = 0;                     ///< Number of another type
  int32_t buffer = -1;                     ///< Load, LoadAt
  bool by_row = false, by_column = false;  ///< what it depends on

  bool operator==(const Term& other) const;
};

}  // namespace ahead::native
