#pragma once

#include <ATen/core/ivalue.h>
#include <c10/core/ScalarType.h>
#include <c10/util/SmallVector.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

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
  Select,   ///< the second operand where the first is true, else the third
  Convert,  ///< the operand in the term's type, as C++ converts
  RoundTo,  ///< the operand, rounded to what Term::dtype can hold
  Rounded,  ///< a product, rounded before anything is added to it
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

using Sizes = c10::SmallVector<int64_t, 4>;

/// Memory that a kernel reads or writes: an argument or a result.
struct Buffer {
  at::ScalarType dtype;
  bool is_result;
  int32_t index;        ///< among the arguments, or among the results
  Sizes rows, columns;  ///< how far apart elements lie along each axis
  int64_t picked = 0;   ///< and along the dimension of which LoadAt names a place

  bool operator==(const Buffer& other) const = default;
};

/// A program over rows and columns, each a nest of axes, the innermost last. All rows do the same
/// and may run at once; sums along the columns of a row end before what depends on them begins.
struct Kernel {
  struct Store {
    TermId term;
    int32_t buffer;
  };
  /// A sum over all rows: of each column, of all columns, or of what rows have without columns. Or
  /// one for each element of the result, over the axes that the result lacks, of which the
  /// innermost of the columns is one.
  struct Sum {
    enum class Kind : uint8_t { EachColumn, All, Rows, EachElement };
    Kind kind;
    TermId term;
    int32_t buffer;     ///< -1: only others need it
    double divisor;     ///< what is written is the sum divided by this
    int32_t over = -1;  ///< and by this one of the sums, which has one number; -1: by none
  };
  /// The whole numbers of an argument must lie in [0, size), or be `other`, for the kernel to be
  /// right.
  struct Bound {
    int32_t argument;
    int64_t size;
    std::optional<int64_t> other;
  };

  /// What one of the sums counts must not be; `fail` throws ATen's error.
  struct Demand {
    int32_t sum;
    void (*fail)();
  };

  std::string name;  ///< made of the operators
  Sizes rows, columns;
  std::vector<Buffer> buffers;
  std::vector<Term> terms;  ///< operands stand before what uses them
  std::vector<Store> stores;
  std::vector<Sum> sums;
  std::vector<Bound> bounds;
  std::vector<Demand> demands;

  /// How many numbers a sum has.
  int64_t length(const Sum& sum) const;
  int64_t num_rows() const;
  int64_t num_columns() const;
  /// The program as text, for people.
  std::string str() const;
};

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
