#include "observe/tape/custom_formula.h"

#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/dynamo/compiled_autograd.h>

#include <memory>
#include <string_view>
#include <typeinfo>
#include <utility>

#include "base/compiler_interface.h"
#include "base/front_engine.h"
#include "base/private_members.h"

namespace ahead::observe {
namespace {

using torch::autograd::variable_list;
using namespace torch::dynamo::autograd;  // NOLINT: LibTorch's interface, as a whole

/// The nodes of all custom functions are laid out alike: their function decides only what they do.
struct AnyFunction : torch::autograd::Function<AnyFunction> {
  static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& x) { return x; }
  static variable_list backward(torch::autograd::AutogradContext*, const variable_list& gradients) {
    return gradients;
  }
};

/// Notes the function that a node would have called, and its arguments.
class Listener final : public PyCompilerInterface {
 public:
  explicit Listener(std::optional<CustomFormula>& heard) : heard_(heard) {}

  std::string bind_function(PyObject*, const std::string& name, functional_apply_t formula,
                            std::vector<at::TypePtr>, bool, bool) const override {
    heard_.emplace();
    heard_->apply = [formula = std::move(formula)](const variable_list& gradients,
                                                   const std::vector<c10::IValue>& saved) {
      return formula(gradients, saved);
    };
    return name;
  }
  variable_list call_function(PyObject*, const char*, const std::string&, const variable_list&,
                              const ivalue_list& saved, const c10::IValue&) const override {
    heard_->saved = saved;
    return {};
  }

 private:
  std::optional<CustomFormula>& heard_;
};

/// For a scope, tensors that autograd saves on this thread get no hooks of a packer.
class NoPacker {
 public:
  NoPacker() : packer_(std::exchange(front_engine::packer(), nullptr)) {}
  ~NoPacker() { front_engine::packer() = packer_; }
  NoPacker(const NoPacker&) = delete;
  NoPacker& operator=(const NoPacker&) = delete;

 private:
  SavedTensorPacker* const packer_;
};

bool is_plain(const c10::IValue& value) {
  return value.isNone() || value.isInt() || value.isDouble() || value.isBool() ||
         value.isString() || value.isScalar() || value.isDevice() || value.isIntList() ||
         value.isDoubleList() || value.isBoolList() || value.isComplexDouble() ||
         value.isStream() || value.isGenerator();
}

}  // namespace

bool is_custom(const torch::autograd::Node& node) {
  // torch::autograd::CppNode<...>, as compilers on Linux name it.
  return std::string_view(typeid(node).name()).starts_with("N5torch8autograd7CppNodeI");
}

OpenContext::OpenContext(torch::autograd::Node& node) : node_(node) {
  exchange();
}

OpenContext::~OpenContext() {
  exchange();
}

void OpenContext::exchange() {
  if (!is_custom(node_)) return;
  auto& context = reinterpret_cast<torch::autograd::CppNode<AnyFunction>&>(node_).ctx_;
  std::swap(non_differentiable_tensors(context), non_differentiable_);
  std::swap(dirty_tensors(context), dirty_);
}

std::optional<CustomFormula> formula_of(const NodePtr& node) {
  const OpenContext open(*node);
  // What stands for saved tensors is saved for a moment, which no checkpointed region is to see.
  const NoPacker no_packer;
  std::optional<CustomFormula> heard;
  std::lock_guard<std::mutex> lock(compiler_interface_mutex());
  const PyCompilerGuard installed(std::make_unique<Listener>(heard));
  AutogradCompilerCall call(SizeInput::STATIC);
  try {
    const NodeCall node_call(0, node);
    NodeCall asked(0, node);
    CompiledNodeArgs args(call, asked);
    node->compiled_args(args);
    for (const at::Tensor& tensor : call.tensor_args.inputs)
      call.tensor_args.lookup(tensor).proxy_tensor = tensor;
    for (LiftedIValueArg& number : call.lifted_ivalue_args.args) number.proxy = *number.actual_ptr;
    TraceState state(std::vector<std::optional<c10::SymInt>>(call.all_size_inputs.size()), 0);
    SwapSavedVariables saved(call, state, nullptr, node_call);
    node->apply_with_saved({}, saved);
  } catch (const std::exception&) {
    return std::nullopt;
  }
  return heard;
}

bool map_saved(c10::IValue& value, const std::function<at::Tensor(const at::Tensor&)>& map) {
  if (value.isTensor()) {
    if (value.toTensor().defined()) value = c10::IValue(map(value.toTensor()));
    return true;
  }
  if (value.isTensorList()) {
    std::vector<at::Tensor> tensors = value.toTensorVector();
    for (at::Tensor& tensor : tensors) {
      if (tensor.defined()) tensor = map(tensor);
    }
    value = c10::IValue(std::move(tensors));
    return true;
  }
  if (value.isTuple()) {
    std::vector<c10::IValue> elements(value.toTupleRef().elements().vec());
    for (c10::IValue& element : elements) {
      if (!map_saved(element, map)) return false;
    }
    value = c10::ivalue::Tuple::create(std::move(elements));
    return true;
  }
  if (value.isList()) {
    auto list = value.toList().copy();
    for (size_t i = 0; i < list.size(); ++i) {
      c10::IValue element = list.get(i);
      if (!map_saved(element, map)) return false;
      list.set(i, std::move(element));
    }
    value = c10::IValue(std::move(list));
    return true;
  }
  return is_plain(value);
}

}  // namespace ahead::observe
