#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "ahead/graph.h"

/// What "the same as in eager mode" means: the inputs that both sides get, and the comparisons that
/// all tests are built on.
namespace ahead {

/// Random numbers that require grad.
at::Tensor leaf(at::IntArrayRef sizes);
/// The identity as a tensor of the same storage and strides that is neither a leaf nor a view, so
/// that writing to it is legal.
at::Tensor as_non_leaf(const at::Tensor& leaf);
/// Fills a tensor, those inside if it is a wrapper, with numbers that are the same for the same
/// seed, and returns it.
at::Tensor random_tangent(at::Tensor empty, uint64_t seed);
/// The state of the default generator of the CPU.
at::Tensor random_state();

/// The message of what an action throws, without where it was thrown; empty if it throws nothing.
std::string error_of(const std::function<void()>& action);

/// Whether two tensors of one type and shape have the same bits: all NaNs are equal, zeros of
/// opposite sign are not. Sparse tensors are compared as dense ones.
bool same_bits(const at::Tensor& expected, const at::Tensor& actual);

/// By how many units in the last place that a float32 has of the largest number, or of 1, tensors
/// may be off that kernels of the native backend have computed; in narrow types by a few of their
/// own.
constexpr double kernel_rounding = 256;
/// None, unless the tests are run with that backend (AHEAD_BACKEND=native).
double default_rounding();

/// Whether two tensors have the same shape and, apart from such roundings, the same numbers.
/// Infinities, NaNs, and numbers that are no floating point ones have to be equal in any case.
bool same_values(const at::Tensor& expected, const at::Tensor& actual,
                 double rounding = default_rounding());

/// The metadata without the strides that mean nothing: those of dimensions with at most one
/// element.
TensorMeta meaningful(TensorMeta meta);

/// How much of the layout of tensors is compared.
enum class CompareLayout : uint8_t {
  Meaningful,   ///< the offset in the storage, and the strides that mean something
  EveryStride,  ///< all strides and lazy bits, but no offset
};

/// The plain tensors that a wrapper is made of, depth first; of a plain tensor, itself.
std::vector<at::Tensor> plain_tensors(const at::Tensor& tensor);

/// Says how two plain tensors differ in presence or metadata; empty if they do not.
std::string layout_difference(const at::Tensor& expected, const at::Tensor& actual,
                              CompareLayout layout = CompareLayout::Meaningful);

/// Says how two tensors differ in presence, metadata or bits; empty if they do not, or by roundings
/// alone. Wrappers differ in class, look, or in the tensors inside.
std::string tensor_difference(const at::Tensor& expected, const at::Tensor& actual,
                              CompareLayout layout = CompareLayout::Meaningful,
                              double rounding = default_rounding());

/// What LibTorch says of a tensor besides.
struct TensorFlags {
  TensorFlags() = default;
  explicit TensorFlags(const at::Tensor& tensor);

  bool requires_grad = false;
  bool is_leaf = true;
  bool is_inference = false;
  int64_t version = 0;  ///< tensors of inference mode have none
};

/// Something in which two tensors, or two calls, differ.
struct Difference {
  /// What kind of thing differs, for example `requires_grad`.
  std::string what;
  std::string detail;
};

/// All flags that differ. Versions are compared only on demand: what nobody knew before may have
/// another one.
std::vector<Difference> flag_differences(const TensorFlags& expected, const TensorFlags& actual,
                                         bool versions);

/// Expects two lists of tensors to be the same, and to agree in whether they require grad.
void expect_same(const std::vector<at::Tensor>& expected, const std::vector<at::Tensor>& actual);

/// All that can be seen of a tensor at one time, to tell later whether anybody has touched it.
class TensorSnapshot {
 public:
  explicit TensorSnapshot(const at::Tensor& tensor);

  /// What has changed since, in a word; empty if nothing has.
  std::string change(const at::Tensor& now) const { return difference(TensorSnapshot(now)); }

 private:
  std::string difference(const TensorSnapshot& now) const;

  at::Tensor memory_;  ///< a copy of the whole storage, as bytes
  TensorMeta meta_;
  TensorFlags flags_;
  const void* grad_fn_;
  at::Tensor grad_;
  size_t num_hooks_;
};

}  // namespace ahead
