#pragma once

#include <torch/csrc/dynamo/compiled_autograd.h>

#include <vector>

#include "base/private_members.h"

namespace ahead::engine {

/// The memory in which LibTorch collects what nodes hold, kept from one backward to the next: when
/// large pieces are asked for anew, the memory allocator tidies all the small ones up.
class CallMemory {
 public:
  using Call = torch::dynamo::autograd::AutogradCompilerCall;

  /// To a call that has collected nothing yet.
  void lend(Call& call) { exchange(call); }
  /// From a call whose contents are not needed any more.
  void take_back(Call& call);

 private:
  void exchange(Call& call);

  std::vector<at::Tensor> inputs_;
  std::vector<torch::dynamo::autograd::SizeInput> sizes_;
  TensorArgsByTensor arguments_;
  TensorArgsBySaved saved_;
};

}  // namespace ahead::engine
