#pragma once

#include <torch/csrc/autograd/edge.h>
#include <torch/torch.h>

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
  /// Contents follow from this number.
  uint64_t seed = 0;
  /// The input at this position, once more; -1 for a tensor of its own.
  int same_as = -1;
  /// A tensor over the memory of the input at this position; -1 for memory of its own.
  int shares_memory_with = -1;

  bool is_own() const { return same_as < 0 && shares_memory_with < 0; }
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

  /// What of the gradient that arrives is the input's.
  at::Tensor gradient(const at::Tensor& arriving) const;
};

/// Makes all inputs, equal for equal descriptions to the last bit.
std::vector<MadeInput> make_inputs(const std::vector<Input>& inputs);

/// One input that is a tensor of its own: for pasted programs.
at::Tensor make_input(const Input& input);
/// Another tensor over the same memory: the first half of it along the first dimension.
at::Tensor sharing_memory_with(const at::Tensor& tensor);

}  // namespace ahead::fuzz
