#pragma once

#include <torch/csrc/autograd/cpp_hook.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/csrc/autograd/utils/warnings.h>
#include <torch/csrc/dynamo/compiled_autograd.h>

#include <mutex>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace torch::nn {
class Module;
}

/// Private members of LibTorch's classes for which there is no other way. This is the only place
/// that knows them.
namespace ahead {

/// What LibTorch collected of each tensor.
using TensorArgsByTensor =
    std::unordered_map<const c10::TensorImpl*, torch::dynamo::autograd::TensorArg>;
TensorArgsByTensor& args_by_tensor(torch::dynamo::autograd::TensorArgs& all);

/// And of each saved variable.
using TensorArgsBySaved =
    std::unordered_map<const torch::autograd::SavedVariable*, torch::dynamo::autograd::TensorArg*>;
TensorArgsBySaved& args_by_saved_variable(torch::dynamo::autograd::TensorArgs& all);

/// The constants that nodes told of so far. LibTorch's own key() gives their size modulo 65536.
c10::ArrayRef<uint8_t> constants_of(const torch::dynamo::autograd::CompiledNodeArgs& args);

/// The tensor that was saved.
at::Tensor& saved_data(torch::autograd::SavedVariable& saved);

/// What packs and unpacks it; null: nothing does.
using SavedTensorHooks = std::unique_ptr<torch::autograd::SavedVariableHooks>;
SavedTensorHooks& hooks_of(torch::autograd::SavedVariable& saved);

/// The tensors that a custom function marked.
using MarkedTensors = std::unordered_set<at::TensorImpl*>;
MarkedTensors& non_differentiable_tensors(torch::autograd::AutogradContext& context);
MarkedTensors& dirty_tensors(torch::autograd::AutogradContext& context);

/// The warnings that were held back; LibTorch's own replay_warnings() is not exported.
std::vector<c10::Warning> take_warnings(torch::autograd::utils::DelayWarningHandler& handler);

/// The functions that were registered on a tensor with register_hook, a removed one as an empty
/// one; null: this is another kind of hook, of a class of its own.
const torch::autograd::hooks_list* functions_of(const torch::autograd::FunctionPreHook& hook);

/// The buffer that a module has registered under this name, in the module itself.
at::Tensor& registered_buffer(torch::nn::Module& module, const std::string& name);

/// Keeps other threads from reading or releasing what the node holds: takes the lock that nodes
/// themselves take for that.
std::unique_lock<std::mutex> lock_node(torch::autograd::Node& node);

/// Throws InternalError, with what is wrong, unless the members are what they are taken for in this
/// LibTorch. Looks once in a process.
void check_private_members();

}  // namespace ahead
