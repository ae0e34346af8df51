#pragma once

#include <torch/csrc/autograd/utils/warnings.h>
#include <torch/csrc/dynamo/compiled_autograd.h>

#include <mutex>
#include <unordered_map>
#include <vector>

/// Private members of LibTorch's classes for which there is no other way:
/// `(args.*member_of(ArgumentsOf())).swap(mine)`.
namespace ahead::engine {

/// TensorArgs: what is known of each tensor.
struct ArgumentsOf {
  using Map = std::unordered_map<const c10::TensorImpl*, torch::dynamo::autograd::TensorArg>;
  using Type = Map torch::dynamo::autograd::TensorArgs::*;
  friend Type member_of(ArgumentsOf);
};

/// TensorArgs: and of each saved variable.
struct SavedOf {
  using Map = std::unordered_map<const torch::autograd::SavedVariable*,
                                 torch::dynamo::autograd::TensorArg*>;
  using Type = Map torch::dynamo::autograd::TensorArgs::*;
  friend Type member_of(SavedOf);
};

/// DelayWarningHandler: what was collected, and its lock. Its replay_warnings() is not exported.
struct WarningsOf {
  using Type = std::vector<c10::Warning> torch::autograd::utils::DelayWarningHandler::*;
  friend Type member_of(WarningsOf);
};
struct WarningsLockOf {
  using Type = std::mutex torch::autograd::utils::DelayWarningHandler::*;
  friend Type member_of(WarningsLockOf);
};

}  // namespace ahead::engine
