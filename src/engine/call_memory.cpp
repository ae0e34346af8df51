#include "engine/call_memory.h"

namespace ahead::engine {
namespace {

using torch::dynamo::autograd::TensorArgs;

/// The maps are private. That a template is instantiated with a member is no use of its name, so
/// the compiler lets it pass.
template <class Tag, typename Tag::Type member>
struct Private {
  friend typename Tag::Type member_of(Tag) { return member; }
};
struct ArgumentsOf {
  using Type = CallMemory::Arguments TensorArgs::*;
  friend Type member_of(ArgumentsOf);
};
struct SavedOf {
  using Type = CallMemory::Saved TensorArgs::*;
  friend Type member_of(SavedOf);
};
template struct Private<ArgumentsOf, &TensorArgs::_args>;
template struct Private<SavedOf, &TensorArgs::_saved_variables>;

}  // namespace

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
