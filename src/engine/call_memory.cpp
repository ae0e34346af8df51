#include "engine/call_memory.h"

#include "base/private_members.h"

namespace ahead::engine {

void CallMemory::exchange(Call& call) {
  call.tensor_args.inputs.swap(inputs_);
  call.all_size_inputs.swap(sizes_);
  args_by_tensor(call.tensor_args).swap(arguments_);
  args_by_saved_variable(call.tensor_args).swap(saved_);
}

void CallMemory::take_back(Call& call) {
  exchange(call);
  inputs_.clear();
  sizes_.clear();
  saved_.clear();
  arguments_.clear();
}

}  // namespace ahead::engine
