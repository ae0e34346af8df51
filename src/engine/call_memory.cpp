#include "engine/call_memory.h"

#include "base/private_members.h"

namespace ahead::engine {

void CallMemory::exchange(Call& call) {
  call.tensor_args.inputs.swap(inputs_);
  call.all_size_inputs.swap(sizes_);
  (call.tensor_args.*member_of(ArgumentsOf())).swap(arguments_);
  (call.tensor_args.*member_of(SavedOf())).swap(saved_);
}

void CallMemory::take_back(Call& call) {
  exchange(call);
  inputs_.clear();
  sizes_.clear();
  saved_.clear();
  arguments_.clear();
}

}  // namespace ahead::engine
