#pragma once

#include <torch/csrc/autograd/edge.h>
#include <torch/torch.h>

#include <algorithm>
#include <string>
#include <vector>

namespace ahead::fuzz {

/// How the elements of an input lie in its storage.
enum class Layout : uint8_t {
  Contiguous,
  Offset,      ///< contiguous, but not at the start of the storage
  Transposed,  ///< the first dimension runs fastest
  Gapped,      ///< every second element of the storage, with an offset
  Expanded,    ///< the first dimension has stride zero
};

/// Where an input that requires grad comes from.
enum class Origin : uint8_t {
  Leaf,
  Computed,        ///< result of an operator
  ViewOfComputed,  ///< a view of such a result
};

/// One tensor that a program is given, either as an argument or by capture.
struct Input {
  at::ScalarType dtype = at::kFloat;
  std::vector<int64_t> sizes;
  Layout layout = Layout::Contiguous;
  Origin origin = Origin::Leaf;
  bool requires_grad = false;
  bool captured = false;
  /// A TwoTensor, whose second tensor has other contents.
  bool wrapper = false;
  /// Contents follow from this number.
  uint64_t seed = 0;
  /// By how many units in the last place, more or less, its numbers are off.
  double noise = 0;
  /// The input at this position, once more; -1 for a tensor of its own.
  int same_as = -1;
  /// A tensor over the memory of the input at this position; -1 for memory of its own.
  int shares_memory_with = -1;
  /// A view, known to autograd, of the input at this position; -1 for none.
  int view_of = -1;

  /// The input at another position that it is made of; -1 for a tensor of its own.
  int origin_position() const { return std::max({same_as, shares_memory_with, view_of}); }
  bool is_own() const { return origin_position() < 0; }
  /// The expression that makes it.
  std::string str() const;
};

/// An input made real.
struct MadeInput {
  at::Tensor tensor;
  /// Where its gradient arrives, whatever is written to it later; empty if it does not require
  /// grad.
  torch::autograd::Edge edge;
  /// The edge is that of the tensor which this one is a view of.
  bool through_view = false;
  /// The leaf behind it, if there is one.
  at::Tensor leaf = {};

  /// What of the gradient that arrives is the input's.
  at::Tensor gradient(const at::Tensor& arriving) const;
};

/// Makes all inputs, equal for equal descriptions to the last bit. Those that are captured are
/// taken from those made before, if there are any.
std::vector<MadeInput> make_inputs(const std::vector<Input>& inputs,
                                   const std::vector<MadeInput>& before = {});

/// One input that is a tensor of its own: for pasted programs.
at::Tensor make_input(const Input& input);
/// Another tensor over the same memory: the first half of it along the first dimension.
at::Tensor sharing_memory_with(const at::Tensor& tensor);
/// A view: all but the first element along the first dimension, or the whole if there is but one.
at::Tensor view_of(const at::Tensor& tensor);

}  // namespace ahead::fuzz
