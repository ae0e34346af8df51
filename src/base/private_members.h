#pragma once

#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/csrc/autograd/utils/warnings.h>
#include <torch/csrc/dynamo/compiled_autograd.h>

#include <mutex>
#include <unordered_map>
#include <unordered_set>
#include <vector>

/// Private members of LibTorch's classes for which there is no other way:
/// `(args.*member_of(ArgumentsOf())).swap(mine)`.
namespace ahead {

/// The member that one of the tags below names.
template <class Tag>
typename Tag::Type member_of(Tag tag);

/// TensorArgs: what is known of each tensor.
struct ArgumentsOf {
  using Map = std::unordered_map<const c10::TensorImpl*, torch::dynamo::autograd::TensorArg>;
  using Type = Map torch::dynamo::autograd::TensorArgs::*;
  friend Type opened(ArgumentsOf);
};

/// TensorArgs: and of each saved variable. The public list has each tensor only once.
struct SavedOf {
  using Map = std::unordered_map<const torch::autograd::SavedVariable*,
                                 torch::dynamo::autograd::TensorArg*>;
  using Type = Map torch::dynamo::autograd::TensorArgs::*;
  friend Type opened(SavedOf);
};

/// SavedVariable: the tensor that was saved.
struct SavedDataOf {
  using Type = at::Tensor torch::autograd::SavedVariable::*;
  friend Type opened(SavedDataOf);
};

/// AutogradContext: the tensors that a custom function marked.
struct NonDifferentiableOf {
  using Type = std::unordered_set<at::TensorImpl*> torch::autograd::AutogradContext::*;
  friend Type opened(NonDifferentiableOf);
};
struct DirtyOf {
  using Type = std::unordered_set<at::TensorImpl*> torch::autograd::AutogradContext::*;
  friend Type opened(DirtyOf);
};

/// DelayWarningHandler: what was collected, and its lock. Its replay_warnings() is not exported.
struct WarningsOf {
  using Type = std::vector<c10::Warning> torch::autograd::utils::DelayWarningHandler::*;
  friend Type opened(WarningsOf);
};
struct WarningsLockOf {
  using Type = std::mutex torch::autograd::utils::DelayWarningHandler::*;
  friend Type opened(WarningsLockOf);
};

}  // namespace ahead
