#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <string>
#include <vector>

/// Recipes for tensors. A sample holds recipes rather than tensors, so that a table of thousands of
/// samples costs no memory and every run starts from the same fresh values.
namespace ahead::samples {

/// A set of element types: `floating | integral`.
class Dtypes {
 public:
  constexpr Dtypes() = default;
  constexpr Dtypes(at::ScalarType dtype) : bits_(uint64_t{1} << static_cast<int>(dtype)) {}
  constexpr Dtypes operator|(Dtypes other) const { return from_bits(bits_ | other.bits_); }
  /// The types of this set that are not in the other.
  constexpr Dtypes operator-(Dtypes other) const { return from_bits(bits_ & ~other.bits_); }
  constexpr bool contains(at::ScalarType dtype) const { return bits_ & Dtypes(dtype).bits_; }
  /// The members; f32 first if it is one, since the first one gets the most samples.
  std::vector<at::ScalarType> list() const;

 private:
  static constexpr Dtypes from_bits(uint64_t bits) {
    Dtypes result;
    result.bits_ = bits;
    return result;
  }
  uint64_t bits_ = 0;
};

inline constexpr Dtypes full_floating = Dtypes(at::kFloat) | at::kDouble;
inline constexpr Dtypes half_floating = Dtypes(at::kBFloat16) | at::kHalf;
inline constexpr Dtypes floating = full_floating | half_floating;
inline constexpr Dtypes integral = Dtypes(at::kLong) | at::kInt | at::kByte;
inline constexpr Dtypes boolean = Dtypes(at::kBool);
inline constexpr Dtypes complex = Dtypes(at::kComplexFloat) | at::kComplexDouble;
inline constexpr Dtypes real = floating | integral;
inline constexpr Dtypes numeric = real | complex;
inline constexpr Dtypes everything = numeric | boolean;

/// The recipe of one tensor. The sizes are those of the finished tensor; the layout decides its
/// strides only. Methods return a changed copy: `f32(2, 3).positive().transposed()`.
class Input {
 public:
  Input(at::ScalarType dtype, std::vector<int64_t> sizes);

  // Values. By default: normal for floating and complex types, -9..9 for integers (0..9 unsigned).
  /// Uniform in [low, high); for integers the numbers low, low + 1, … below high.
  Input range(double low, double high) const;
  /// In [0.5, 2.5), or 1..9: no zeros, nothing negative.
  Input positive() const;
  /// All different, in no order, so that ranks and maxima are unique.
  Input distinct() const;
  /// Normal values among which NaN, both infinities, both zeros and the extremes of the type occur.
  Input specials() const;
  /// The numbers 0 … numel - 1, in no order.
  Input permutation() const;
  /// Symmetric (Hermitian) and positive definite in the last two dimensions.
  Input spd() const;
  /// All elements are this number.
  Input filled(double number) const;

  // Layout.
  /// The last two dimensions are swapped in memory.
  Input transposed() const;
  /// All dimensions are in reverse order in memory.
  Input permuted() const;
  /// Every second element of a larger tensor, in every dimension.
  Input strided() const;
  /// Dimension `dim` has stride 0.
  Input expanded(int64_t dim = 0) const;
  /// Channels last, for 4 or 5 dimensions.
  Input channels_last() const;
  /// Starts three elements into its storage.
  Input offset() const;

  // Role.
  /// Not an argument of the sample's function: a tensor that the function reaches by itself.
  Input captured() const;
  /// Never requires grad, even if its type could.
  Input no_grad() const;

  /// One more dimension of size 2 in front.
  Input stacked() const;

  /// Makes the tensor; the same number gives the same values.
  at::Tensor make(uint64_t seed) const;

  at::ScalarType dtype() const { return dtype_; }
  const std::vector<int64_t>& sizes() const { return sizes_; }
  bool is_captured() const { return captured_; }
  /// Whether a gradient check asks for the gradient of this input.
  bool wants_grad() const;
  /// For labels: `f32[2, 3] transposed`.
  std::string str() const;

 private:
  enum class Values : uint8_t { Normal, Range, Distinct, Specials, Permutation, Spd, Filled };
  enum class Layout : uint8_t {
    Contiguous,
    Transposed,
    Permuted,
    Strided,
    Expanded,
    ChannelsLast,
    Offset
  };
  friend Input number(const at::Scalar& value);

  Input with(Layout layout) const;
  at::Tensor make_values(at::IntArrayRef sizes, at::Generator& generator) const;
  at::Tensor in_layout(const at::Tensor& values) const;

  at::ScalarType dtype_;
  Values values_ = Values::Normal;
  Layout layout_ = Layout::Contiguous;
  bool captured_ = false;
  bool no_grad_ = false;
  bool wrapped_number_ = false;
  int64_t expanded_dim_ = 0;
  double low_ = 0, high_ = 0;
  std::vector<int64_t> sizes_;
};

/// A plain number where a tensor is expected, as in `x * 2.5`: a captured wrapped number.
Input number(const at::Scalar& value);

template <class... Sizes>
Input tensor(at::ScalarType dtype, Sizes... sizes) {
  return Input(dtype, {static_cast<int64_t>(sizes)...});
}
// One maker per element type: f32(2, 3), f32() for a 0-dimensional tensor.
template <class... Sizes>
Input f32(Sizes... sizes) {
  return tensor(at::kFloat, sizes...);
}
template <class... Sizes>
Input f64(Sizes... sizes) {
  return tensor(at::kDouble, sizes...);
}
template <class... Sizes>
Input bf16(Sizes... sizes) {
  return tensor(at::kBFloat16, sizes...);
}
template <class... Sizes>
Input f16(Sizes... sizes) {
  return tensor(at::kHalf, sizes...);
}
template <class... Sizes>
Input i64(Sizes... sizes) {
  return tensor(at::kLong, sizes...);
}
template <class... Sizes>
Input i32(Sizes... sizes) {
  return tensor(at::kInt, sizes...);
}
template <class... Sizes>
Input u8(Sizes... sizes) {
  return tensor(at::kByte, sizes...);
}
template <class... Sizes>
Input b8(Sizes... sizes) {
  return tensor(at::kBool, sizes...);
}
template <class... Sizes>
Input c64(Sizes... sizes) {
  return tensor(at::kComplexFloat, sizes...);
}
template <class... Sizes>
Input c128(Sizes... sizes) {
  return tensor(at::kComplexDouble, sizes...);
}
/// Positions below `end`: i64(sizes…).range(0, end).
template <class... Sizes>
Input index(int64_t end, Sizes... sizes) {
  return i64(sizes...).range(0, static_cast<double>(end));
}

/// The arguments of one sample.
using Inputs = std::vector<Input>;

/// What kind of numbers a standard set of inputs holds.
enum class Domain : uint8_t { Any, Positive, Unit, AboveOne };

/// Whether the operands of a standard set may differ in type.
enum class Mixing : uint8_t { Types, None };

/// One operand in every layout (0-dimensional, empty, transposed, strided, expanded, channels
/// last…) for the first type of the set, and in the plain ones for the other types.
std::vector<Inputs> unary_inputs(Dtypes dtypes, Domain domain = Domain::Any);

/// One operand that can be written to, in a few layouts for the first type and one for the others.
std::vector<Inputs> writable_inputs(Dtypes dtypes, Domain domain = Domain::Any);

/// Two operands, of which the first can be written to and is as large as the result.
std::vector<Inputs> writable_binary_inputs(Dtypes dtypes, Domain domain = Domain::Any,
                                           Mixing mixing = Mixing::Types);

/// Two operands: equal shapes, broadcasts, mixed layouts and, unless unwanted, mixed types and
/// plain numbers.
std::vector<Inputs> binary_inputs(Dtypes dtypes, Domain domain = Domain::Any,
                                  Mixing mixing = Mixing::Types);

/// Three operands, as binary_inputs, all of one type.
std::vector<Inputs> ternary_inputs(Dtypes dtypes, Domain domain = Domain::Any);

}  // namespace ahead::samples
