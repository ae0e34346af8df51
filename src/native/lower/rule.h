#pragma once

#include <ATen/core/ivalue.h>
#include <c10/util/SmallVector.h>

#include <optional>
#include <string>
#include <vector>

#include "ahead/graph.h"
#include "native/lower/formula.h"

namespace ahead::native {

/// The loops that an operator needs: a space of dimensions, and how tensors lie in it.
struct Work {
  /// The dimensions of the space that a dimension of a tensor follows: so many from this one on,
  /// one inside the other. -1: it has one element, and is the same along all of the space.
  struct Follows {
    Follows(int dim, int count = 1)
        : dim(static_cast<int8_t>(dim)), count(static_cast<int8_t>(count)) {}
    bool is_none() const { return dim < 0; }

    int8_t dim, count;
  };
  /// For each dimension of a tensor what it follows.
  using Place = c10::SmallVector<Follows, 6>;

  c10::SmallVector<int64_t, 6> space;
  /// By position. What is no tensor, or is taken for its shape only, has none.
  std::vector<Place> arguments;
  /// By position. Results behind the last one are not computed: nobody may want them.
  std::vector<Place> results;
  /// The dimensions along which it sums up in order to compute what varies along them; bits.
  uint32_t row_dims = 0;
  /// The arguments of which other elements are read than those that lie in the space; bits. They
  /// must be in memory.
  uint32_t picked = 0;

  /// The dimensions that a result is summed up over.
  uint32_t reduced(size_t result) const;
  /// Whether a result of the node has elements that follow nothing in the space, each of which is
  /// written by itself (Emitter::out_sum_at); nobody reads them before all are in memory.
  bool is_written_in_parts(const Node& node, size_t result) const;
};

/// A number as a tensor of this dtype holds it, where that is narrower than what kernels compute
/// in.
at::Scalar held_by(at::ScalarType dtype, const at::Scalar& number);

/// The number that a tensor of one element holds, or of which this is a view, if a node fills it with
/// one that is known: kernels have it in their formulas.
std::optional<at::Scalar> constant_of(const Value& value);

/// Where the formula of an operator gets its operands from and puts its results.
class Emitter {
 public:
  virtual ~Emitter() = default;

  const Node& node() const { return node_; }
  /// An argument, a tensor or a number, in the type in which the first result is computed.
  Formula in(size_t argument);
  /// An argument in its own type; a number as the dtype of the tensor argument `like` holds it.
  Formula raw(size_t argument, size_t like = 0);
  bool has(size_t argument) const;
  Formula constant(Type type, double value) { return {&builder(), builder().number(type, value)}; }
  double number(size_t argument) const;
  bool flag(size_t argument) const;
  /// The whole numbers of an argument, which must lie in [0, size), or be `other`.
  virtual Formula index(size_t argument, int64_t size, std::optional<int64_t> other = {}) = 0;
  /// An argument, at a place along one of its dimensions, in its own type.
  virtual Formula at(size_t argument, size_t dim, Formula place) = 0;
  /// An argument at one place along one of its dimensions.
  virtual Formula element(size_t argument, size_t dim, int64_t place) = 0;
  /// The position along the dimension of a row.
  virtual Formula position() = 0;
  /// What a value is at a position along the dimension of a row, which is the same for all of it.
  Formula at_position(Formula value, Formula place);
  /// Whether somebody wants this result.
  virtual bool wants(size_t result) const = 0;

  /// Gives a result its value, rounded to its dtype.
  virtual void out(size_t result, Formula value) = 0;
  /// Gives a result the sum of a value over the dimensions that the result lacks, divided by a
  /// number.
  virtual void out_sum(size_t result, Formula value, double divisor = 1) = 0;
  /// Gives one place along a dimension of a result, which follows none, the sum of a value over the
  /// dimensions that the result lacks.
  virtual void out_sum_at(size_t result, size_t dim, int64_t place, Formula value) = 0;
  /// Gives a result the sum over all rows of a value that each row has once, divided by such a sum
  /// of another value if that is given.
  virtual void out_sum_of_rows(size_t result, Formula value,
                               std::optional<Formula> divisor = {}) = 0;
  /// Lets a call fail, as ATen does, where something is true.
  virtual void refuse(Formula wrong, void (*fail)()) = 0;
  /// How many elements there are along the dimensions of a row (Work::row_dims).
  virtual double row_length() const = 0;

 protected:
  explicit Emitter(const Node& node) : node_(node) {}
  virtual TermBuilder& builder() = 0;
  /// A tensor argument, in its own type.
  virtual Formula load(size_t argument) = 0;

 private:
  const Node& node_;
};

/// How an operator is computed in loops.
struct Rule {
  const char* name;  ///< of the operator, as graphs print it
  /// The loops of a call; nothing if this call is not for loops.
  std::optional<Work> (*work)(const Node& node);
  void (*emit)(Emitter& emitter);
  /// Why a call is left to ATen that has no loops.
  const char* why_left = "its rule is not for such arguments";
};

/// The rule for an operator; null if it has none, and is left to ATen.
const Rule* find_rule(const Operator& op);

/// The loops of a node; nothing if it is left to ATen. Tensors are on the CPU, of dtypes that
/// kernels know, of fixed sizes, and not empty.
std::optional<Work> work_of(const Node& node);

/// Why there are no loops for a node, in words.
std::string why_left(const Node& node);

/// Rules of one family, by their names in graphs; null: the end.
extern const Rule pointwise_rules[];
extern const Rule row_rules[];
extern const Rule index_rules[];
extern const Rule product_rules[];

}  // namespace ahead::native
