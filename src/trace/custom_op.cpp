#include "trace/custom_op.h"

#include <ATen/FunctionalTensorWrapper.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/clone.h>
#include <torch/library.h>

#include <mutex>
#include <unordered_set>

#include "ahead/errors.h"
#include "ir/signature.h"
#include "trace/fake_handler.h"
#include "trace/map_tensors.h"

namespace ahead::tracing {
namespace {

namespace functional = at::functionalization::impl;

/// One call of a mutable operator at the level of functionalisation.
class MutableOpHandler {
 public:
  MutableOpHandler(const c10::OperatorHandle& handle, torch::jit::Stack& stack)
      : handle_(handle),
        stack_(stack),
        op_(traced_op(handle)),
        first_(stack.size() - static_cast<size_t>(op_.num_args)) {}

  void run() {
    find_written();
    at::AutoDispatchSkipFunctionalize below;
    unwrap_arguments();
    if (written_.empty()) return handle_.callBoxed(stack_);
    clone_written();
    FakeHandler handler(handle_, stack_);
    handler.run();
    write_back(handler.written());
    wrap_results();
  }

 private:
  void find_written() {
    for (size_t index : written_arguments(*op_.op)) {
      const c10::IValue& argument = stack_[first_ + index];
      if (!argument.isTensor()) {
        throw Unsupported("trace",
                          op_.op->name() +
                              ": it writes to an argument that is not a plain tensor. Register a "
                              "Functionalize kernel for it.");
      }
      if (functional::isFunctionalTensor(argument.toTensor()))
        written_.emplace_back(index, argument.toTensor());
    }
  }

  void unwrap_arguments() {
    for (size_t i = first_; i < stack_.size(); ++i) {
      map_tensors(stack_[i], [](const at::Tensor& tensor) {
        if (!functional::isFunctionalTensor(tensor)) return tensor;
        functional::sync(tensor);
        return functional::from_functional_tensor(tensor);
      });
    }
  }

  void clone_written() {
    for (const auto& [index, original] : written_) {
      stack_[first_ + index] = at::clone(stack_[first_ + index].toTensor());
    }
  }

  void write_back(const std::vector<at::Tensor>& contents) {
    for (size_t i = 0; i < written_.size(); ++i) {
      functional::replace_(written_[i].second, contents[i]);
      functional::commit_update(written_[i].second);
      functional::sync(written_[i].second);
    }
  }

  /// A return that is one of the written arguments is that argument itself.
  void wrap_results() {
    const auto& schema = handle_.schema();
    const size_t first = stack_.size() - schema.returns().size();
    for (size_t i = 0; i < schema.returns().size(); ++i) {
      const c10::AliasInfo* alias = schema.returns()[i].alias_info();
      if (alias == nullptr) {
        map_tensors(stack_[first + i],
                    [](const at::Tensor& t) { return functional::to_functional_tensor(t); });
        continue;
      }
      for (const auto& [index, original] : written_) {
        if (*schema.arguments()[index].alias_info() == *alias) stack_[first + i] = original;
      }
    }
  }

  const c10::OperatorHandle& handle_;
  torch::jit::Stack& stack_;
  TracedOp& op_;
  size_t first_;
  std::vector<std::pair<size_t, at::Tensor>> written_;
};

void handle_mutable_op(const c10::OperatorHandle& handle, c10::DispatchKeySet,
                       torch::jit::Stack* stack) {
  MutableOpHandler(handle, *stack).run();
}

}  // namespace

void ensure_functionalizable(TracedOp& op) {
  if (!op.mutates || op.is_functionalizable) return;
  op.is_functionalizable = true;
  static std::mutex mutex;
  static auto* known = new std::unordered_set<const Operator*>;
  std::lock_guard<std::mutex> lock(mutex);
  if (!known->insert(op.op).second) return;
  const c10::OperatorHandle& handle = op.op->handle();
  if (handle.hasKernelForDispatchKey(c10::DispatchKey::Functionalize) ||
      handle.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd)) {
    return;
  }
  const c10::OperatorName& name = handle.operator_name();
  const size_t colons = name.name.find("::");
  // Never unregistered, like the fallbacks.
  auto* library = new torch::Library(torch::Library::IMPL, name.name.substr(0, colons),
                                     c10::DispatchKey::Functionalize, __FILE__, __LINE__);
  const std::string overload = name.overload_name.empty() ? "" : "." + name.overload_name;
  library->impl((name.name.substr(colons + 2) + overload).c_str(),
                torch::CppFunction::makeFromBoxedFunction<&handle_mutable_op>());
}

}  // namespace ahead::tracing
