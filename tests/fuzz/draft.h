#pragma once

#include <functional>
#include <string_view>
#include <utility>
#include <vector>

#include "fuzz/program.h"
#include "fuzz/random.h"

namespace ahead::fuzz {

/// Which tensors an operand may be.
using Filter = std::function<bool(const at::Tensor&)>;

inline bool any(const at::Tensor&) {
  return true;
}
inline bool floating(const at::Tensor& tensor) {
  return tensor.is_floating_point();
}
inline bool integral(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kLong;
}
inline bool boolean(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kBool;
}
inline bool numeric(const at::Tensor& tensor) {
  return !boolean(tensor);
}
/// At least `low` dimensions, and none of size zero.
Filter rank_from(int64_t low, int64_t high = 8);
Filter both(Filter first, Filter second);
/// Shares no memory with `other`.
Filter apart_from(const at::Tensor& other);
Filter same_shape_as(const at::Tensor& other);
/// Fits `other` by broadcasting; `into`: without making it larger.
Filter broadcasts_with(const at::Tensor& other);
Filter broadcasts_into(const at::Tensor& other);

/// Thrown by a draft that finds no operand; the generator then tries something else.
struct NoFit {};

/// An instruction in the making. What is taken is random, among what fits.
class Draft {
 public:
  Draft(const Machine& machine, Random& random) : random(random), machine_(machine) {}

  /// Adds an operand. Variables made lately are preferred.
  at::Tensor take(const Filter& filter);
  /// Adds an operand that is a new captured tensor.
  void capture(Input input);
  /// Adds an operand of this type and shape: one that exists or, failing that, a captured one.
  void take_or_capture(at::ScalarType dtype, at::IntArrayRef sizes, const Filter& filter = any);
  /// Adds a dimension of `tensor` to the integers and returns it without sign.
  int64_t take_dim(const at::Tensor& tensor);

  void add(int64_t integer) { instruction.n.push_back(integer); }
  void add_number(const std::vector<Number>& from) { instruction.s.push_back(random.pick(from)); }
  /// The tensor taken as the index-th operand, which must not be a new captured one.
  const at::Tensor& operand(size_t index) const;

  Instruction instruction;
  /// Inputs that the program needs in addition if it is to have this instruction.
  std::vector<Input> captures;
  Random& random;

 private:
  const Machine& machine_;
};

using Propose = std::function<void(Draft&)>;

/// An operator, or a small idiom, that programs are made of.
struct Operation {
  Call call;
  Propose propose;
};

/// Operations that are chosen from as often as `weight` says.
struct Family {
  std::string_view name;
  double weight;
  std::vector<Operation> operations;

  void add(Propose propose, Call call) { operations.push_back({call, std::move(propose)}); }
};

/// Everything that programs are made of; operators with effects, backwards that write, and regions
/// only if they are asked for.
const std::vector<Family>& families(bool with_effects = false);
/// The same without effects, and operators that are given what changes between calls.
const std::vector<Family>& families_for_call_numbers();

Family pointwise_family();
Family binary_family();
Family matmul_family();
Family reduction_family();
Family view_family();
Family mutation_family();
Family indexed_mutation_family();
Family shape_mutation_family();
Family shaping_family();
Family layer_family();
Family random_family();
Family autograd_family();
Family effect_family();
Family backward_write_family();
Family region_family();
Family size_family();

}  // namespace ahead::fuzz
