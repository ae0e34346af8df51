#include "trace/dispatch/custom_op.h"

#include <ATen/FunctionalTensorWrapper.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/clone.h>
#include <ATen/ops/copy.h>
#include <ATen/ops/empty_strided.h>
#include <torch/library.h>

#include <mutex>
#include <unordered_set>

#include "ahead/errors.h"
#include "ir/signature.h"
#include "tensors/map_tensors.h"
#include "tensors/partial_overlap.h"
#include "trace/dispatch/fake_handler.h"

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
    find_same_memory();
    at::AutoDispatchSkipFunctionalize below;
    unwrap_arguments();
    if (written_.empty() && !op_.is_whole) return handle_.callBoxed(stack_);
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

  /// The kernel may go by strides.
  static at::Tensor clone_exactly(const at::Tensor& tensor) {
    if (tensor.is_non_overlapping_and_dense()) return at::clone(tensor);
    return at::copy(at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options()), tensor);
  }

  /// Arguments that are the same memory are the same clone, so that the operator sees its writes to
  /// the one through the others.
  void clone_written() {
    for (size_t i = 0; i < written_.size(); ++i) {
      c10::IValue& argument = stack_[first_ + written_[i].first];
      const int64_t same = written_as_[i];
      clones_.push_back(same < 0 ? clone_exactly(argument.toTensor())
                                 : clones_[static_cast<size_t>(same)]);
      argument = clones_.back();
    }
    size_t next = 0;
    for (size_t i = first_; i < stack_.size(); ++i) {
      map_tensors(stack_[i], [&](const at::Tensor& tensor) {
        const int64_t same = read_as_[next++];
        return same < 0 ? tensor : clones_[static_cast<size_t>(same)];
      });
    }
  }

  /// The first written argument that is the same memory as this tensor; -1: none.
  int64_t find_same_memory(const at::Tensor& tensor, size_t num_written) const {
    if (!tensor.defined() || !functional::isFunctionalTensor(tensor)) return -1;
    functional::sync(tensor);
    for (size_t i = 0; i < num_written; ++i) {
      const at::Tensor& written = written_[i].second;
      if (!written.is_alias_of(tensor) || written.numel() == 0) continue;
      const bool starts_there = written.storage_offset() == tensor.storage_offset();
      if (starts_there && written.sizes() == tensor.sizes() &&
          written.strides() == tensor.strides())
        return static_cast<int64_t>(i);
      if (starts_there || overlaps_partly(written, tensor)) throw_overlapping();
    }
    return -1;
  }

  [[noreturn]] void throw_overlapping() const {
    throw Unsupported("trace", op_.op->name() +
                                   ": it writes to an argument, and another one is a different "
                                   "view of the same memory. Clone one of them.");
  }

  /// Before anything is unwrapped: afterwards nothing tells which tensors share memory.
  void find_same_memory() {
    for (size_t i = 0; i < written_.size(); ++i) {
      functional::sync(written_[i].second);
      written_as_.push_back(find_same_memory(written_[i].second, i));
    }
    for (size_t i = first_; i < stack_.size(); ++i) {
      map_tensors(stack_[i], [&](const at::Tensor& tensor) {
        read_as_.push_back(find_same_memory(tensor, written_.size()));
        return tensor;
      });
    }
  }

  void write_back(const std::vector<at::Tensor>& contents) {
    for (size_t i = 0; i < written_.size(); ++i) {
      if (written_as_[i] >= 0) continue;
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
  /// For each of them the first that is the same memory; -1: itself.
  std::vector<int64_t> written_as_;
  /// For each tensor among the arguments the one of them that is the same memory; -1: none.
  std::vector<int64_t> read_as_;
  std::vector<at::Tensor> clones_;
};

/// What is inside such an operator has gradients, of which nobody would know.
void refuse_gradient(const TracedOp& op, const torch::jit::Stack& stack) {
  if (!at::GradMode::is_enabled() || (op.num_returns == 0 && !op.mutates)) return;
  for (size_t i = stack.size() - static_cast<size_t>(op.num_args); i < stack.size(); ++i) {
    for_each_tensor(stack[i], [&](const at::Tensor& tensor) {
      if (!tensor.requires_grad()) return;
      throw Unsupported("trace", op.op->name() +
                                     ": it was declared to be an effect, and the operators that "
                                     "its kernel calls have gradients, which one call has not. "
                                     "Call it on detached tensors, or register it for devices "
                                     "(CPU, CUDA) with a gradient of its own.");
    });
  }
}

void handle_mutable_op(const c10::OperatorHandle& handle, c10::DispatchKeySet,
                       torch::jit::Stack* stack) {
  MutableOpHandler(handle, *stack).run();
}

}  // namespace

void record_whole(TracedOp& op, torch::jit::Stack& stack) {
  refuse_gradient(op, stack);
  MutableOpHandler(op.op->handle(), stack).run();
}

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
