#include "base/private_members.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/api/include/torch/nn/module.h>
#include <torch/csrc/autograd/functions/basic_ops.h>
#include <torch/csrc/autograd/variable.h>

#include <cstring>

#include "ahead/errors.h"
#include "base/libtorch.h"

namespace ahead {
namespace {

using torch::autograd::utils::DelayWarningHandler;
using torch::dynamo::autograd::CompiledNodeArgs;
using torch::dynamo::autograd::TensorArgs;

/// That a template is instantiated with a member is no use of its name, so the compiler lets it
/// pass.
template <class Tag, typename Tag::Type member>
struct PrivateMember {
  friend typename Tag::Type member_of(Tag) { return member; }
};

struct ByTensor {
  using Type = TensorArgsByTensor TensorArgs::*;
  friend Type member_of(ByTensor);
};
struct BySaved {
  using Type = TensorArgsBySaved TensorArgs::*;
  friend Type member_of(BySaved);
};
struct Constants {
  using Type = uint8_t* CompiledNodeArgs::*;
  friend Type member_of(Constants);
};
struct ConstantsSize {
  using Type = size_t CompiledNodeArgs::*;
  friend Type member_of(ConstantsSize);
};
struct SavedData {
  using Type = at::Tensor torch::autograd::SavedVariable::*;
  friend Type member_of(SavedData);
};
struct SavedHooks {
  using Type = SavedTensorHooks torch::autograd::SavedVariable::*;
  friend Type member_of(SavedHooks);
};
struct NonDifferentiable {
  using Type = MarkedTensors torch::autograd::AutogradContext::*;
  friend Type member_of(NonDifferentiable);
};
struct Dirty {
  using Type = MarkedTensors torch::autograd::AutogradContext::*;
  friend Type member_of(Dirty);
};
struct HeldWarnings {
  using Type = std::vector<c10::Warning> DelayWarningHandler::*;
  friend Type member_of(HeldWarnings);
};
struct WarningsLock {
  using Type = std::mutex DelayWarningHandler::*;
  friend Type member_of(WarningsLock);
};
struct Buffers {
  using Type = torch::OrderedDict<std::string, at::Tensor> torch::nn::Module::*;
  friend Type member_of(Buffers);
};

template struct PrivateMember<ByTensor, &TensorArgs::_args>;
template struct PrivateMember<BySaved, &TensorArgs::_saved_variables>;
template struct PrivateMember<Constants, &CompiledNodeArgs::_specialization_key>;
template struct PrivateMember<ConstantsSize, &CompiledNodeArgs::_specialization_key_size>;
template struct PrivateMember<SavedData, &torch::autograd::SavedVariable::data_>;
template struct PrivateMember<SavedHooks, &torch::autograd::SavedVariable::hooks_>;
template struct PrivateMember<NonDifferentiable,
                              &torch::autograd::AutogradContext::non_differentiable_>;
template struct PrivateMember<Dirty, &torch::autograd::AutogradContext::dirty_inputs_>;
template struct PrivateMember<HeldWarnings, &DelayWarningHandler::warnings_>;
template struct PrivateMember<WarningsLock, &DelayWarningHandler::mutex_>;
template struct PrivateMember<Buffers, &torch::nn::Module::buffers_>;

/// The lock is for nodes only; a type derived from theirs may name it.
struct AnyNode : torch::autograd::Node {
  static constexpr std::mutex torch::autograd::Node::*lock = &AnyNode::mutex_;
};

void expect(bool is_so, const char* what) {
  if (is_so) return;
  throw InternalError("compiled autograd",
                      std::string(what) + " is not what it is in the LibTorch that this is for.");
}

void check_tensor_args() {
  torch::dynamo::autograd::AutogradCompilerCall call(torch::dynamo::autograd::SizeInput::STATIC);
  const at::Tensor tensor = at::empty({0});
  const torch::autograd::SavedVariable saved;  // an empty one: others would call hooks
  call.tensor_args.add(tensor);
  call.tensor_args.add(saved, nullptr);
  expect(args_by_tensor(call.tensor_args).count(tensor.unsafeGetTensorImpl()) == 1,
         "TensorArgs::_args");
  expect(args_by_saved_variable(call.tensor_args).count(&saved) == 1,
         "TensorArgs::_saved_variables");
}

void check_constants() {
  torch::dynamo::autograd::AutogradCompilerCall call(torch::dynamo::autograd::SizeInput::STATIC);
  torch::dynamo::autograd::NodeCall node(0, make_autograd_node<torch::autograd::Error>(""));
  CompiledNodeArgs args(call, node);
  const uint32_t constant = 12345;
  args.collect(constant);
  const c10::ArrayRef<uint8_t> told = constants_of(args);
  expect(told.data() == args.key().key && told.size() == args.key().key_size,
         "CompiledNodeArgs::_specialization_key");
}

/// None can be made here, since its methods are not exported; it holds these two and nothing else.
static_assert(sizeof(DelayWarningHandler) ==
              sizeof(c10::WarningHandler) + sizeof(std::vector<c10::Warning>) + sizeof(std::mutex));

void check_node_lock() {
  const NodePtr node = make_autograd_node<torch::autograd::Error>("");
  const auto lock = lock_node(*node);
  const std::unique_lock<std::mutex> again(node.get()->*AnyNode::lock, std::try_to_lock);
  expect(lock.owns_lock() && !again.owns_lock(), "Node::mutex_");
}

void check_saved_hooks() {
  struct NoHooks final : torch::autograd::SavedVariableHooks {
    void call_pack_hook(const at::Tensor&) override {}
    at::Tensor call_unpack_hook() override { return {}; }
  };
  torch::autograd::SavedVariable saved;
  hooks_of(saved) = std::make_unique<NoHooks>();
  expect(saved.has_hooks(), "SavedVariable::hooks_");
}

void check_hooks() {
  const at::Tensor leaf = at::empty({0}).requires_grad_();
  leaf.register_hook([](const at::Tensor& gradient) { return gradient; });
  const auto& hooks = torch::autograd::impl::hooks(leaf);
  const auto* functions = hooks.size() == 1 ? functions_of(*hooks[0]) : nullptr;
  expect(functions != nullptr && functions->size() == 1, "CppFunctionTensorPreHook::hooks_");
}

}  // namespace

TensorArgsByTensor& args_by_tensor(TensorArgs& all) {
  return all.*member_of(ByTensor());
}

TensorArgsBySaved& args_by_saved_variable(TensorArgs& all) {
  return all.*member_of(BySaved());
}

at::Tensor& registered_buffer(torch::nn::Module& module, const std::string& name) {
  return (module.*member_of(Buffers()))[name];
}

c10::ArrayRef<uint8_t> constants_of(const CompiledNodeArgs& args) {
  return {args.*member_of(Constants()), args.*member_of(ConstantsSize())};
}

at::Tensor& saved_data(torch::autograd::SavedVariable& saved) {
  return saved.*member_of(SavedData());
}

SavedTensorHooks& hooks_of(torch::autograd::SavedVariable& saved) {
  return saved.*member_of(SavedHooks());
}

MarkedTensors& non_differentiable_tensors(torch::autograd::AutogradContext& context) {
  return context.*member_of(NonDifferentiable());
}

MarkedTensors& dirty_tensors(torch::autograd::AutogradContext& context) {
  return context.*member_of(Dirty());
}

std::vector<c10::Warning> take_warnings(DelayWarningHandler& handler) {
  const std::lock_guard<std::mutex> lock(handler.*member_of(WarningsLock()));
  return std::exchange(handler.*member_of(HeldWarnings()), {});
}

std::unique_lock<std::mutex> lock_node(torch::autograd::Node& node) {
  return std::unique_lock<std::mutex>(node.*AnyNode::lock);
}

const torch::autograd::hooks_list* functions_of(const torch::autograd::FunctionPreHook& hook) {
  // The type is hidden, its name is not.
  if (std::strcmp(typeid(hook).name(), "N5torch8autograd24CppFunctionTensorPreHookE") != 0)
    return nullptr;
  return static_cast<const torch::autograd::CppFunctionTensorPreHook&>(hook).hooks_.get();
}

void check_private_members() {
  [[maybe_unused]] static const bool are_checked = [] {
    check_tensor_args();
    check_constants();
    check_node_lock();
    check_saved_hooks();
    check_hooks();
    return true;
  }();
}

}  // namespace ahead
