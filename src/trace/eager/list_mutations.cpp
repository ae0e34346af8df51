#include "trace/eager/list_mutations.h"

#include <ATen/FunctionalTensorWrapper.h>
#include <ATen/core/LegacyTypeDispatch.h>

#include "ir/signature.h"
#include "ops/facts/facts.h"
#include "tensors/map_tensors.h"
#include "trace/dispatch/traced_op.h"

namespace ahead::tracing {
namespace {

namespace functional = at::functionalization::impl;
using Tensors = std::vector<at::Tensor>;

Tensors tensors_in(const c10::IValue& value) {
  Tensors tensors;
  for_each_tensor(value, [&](const at::Tensor& tensor) { tensors.push_back(tensor); });
  return tensors;
}

/// One call of an operator that writes to lists, as a call of the one that returns new contents.
class ListMutationHandler {
 public:
  ListMutationHandler(const c10::OperatorHandle& handle, torch::jit::Stack& stack)
      : op_(traced_op(handle)),
        stack_(stack),
        first_(stack.size() - static_cast<size_t>(op_.num_args)) {}

  void run() {
    find_written();
    at::AutoDispatchSkipFunctionalize below;
    unwrap_arguments();
    if (!is_traced_) return op_.op->handle().callBoxed(stack_);
    ops::facts(*op_.op).functional->handle().callBoxed(stack_);
    write_back();
  }

 private:
  void find_written() {
    for (size_t index : written_arguments(*op_.op)) {
      const std::optional<size_t> condition = ops::written_only_with(*op_.op, index);
      const bool is_kept = condition && stack_[first_ + *condition].isNone();
      written_.push_back(is_kept ? Tensors() : tensors_in(stack_[first_ + index]));
    }
  }

  void unwrap_arguments() {
    for (size_t i = first_; i < stack_.size(); ++i) {
      map_tensors(stack_[i], [this](const at::Tensor& tensor) {
        if (!functional::isFunctionalTensor(tensor)) return tensor;
        is_traced_ = true;
        functional::sync(tensor);
        return functional::from_functional_tensor(tensor);
      });
    }
  }

  /// The results are the new contents of the written arguments, in their order.
  void write_back() {
    for (size_t i = 0; i < written_.size(); ++i) {
      const Tensors contents = tensors_in(stack_[first_ + i]);
      for (size_t j = 0; j < written_[i].size(); ++j) {
        functional::replace_(written_[i][j], contents[j]);
        functional::commit_update(written_[i][j]);
        functional::sync(written_[i][j]);
      }
    }
    stack_.resize(first_);
  }

  TracedOp& op_;
  torch::jit::Stack& stack_;
  size_t first_;
  bool is_traced_ = false;
  std::vector<Tensors> written_;
};

void handle_list_mutation(const c10::OperatorHandle& handle, c10::DispatchKeySet,
                          torch::jit::Stack* stack) {
  ListMutationHandler(handle, *stack).run();
}

constexpr const char* list_mutations[] = {"_fused_adam_",
                                          "_fused_adam_.tensor_lr",
                                          "_fused_adamw_",
                                          "_fused_adamw_.tensor_lr",
                                          "_fused_sgd_",
                                          "_fused_sgd_.tensor_lr",
                                          "_fused_adagrad_.tensor_lr",
                                          "_foreach_addcdiv_.Tensor",
                                          "_amp_foreach_non_finite_check_and_unscale_"};

}  // namespace

void register_list_mutations(torch::Library& functionalize) {
  for (const char* name : list_mutations)
    functionalize.impl(name, torch::CppFunction::makeFromBoxedFunction<&handle_list_mutation>());
}

Departures list_mutation_departures() {
  Departures all;
  for (const char* name : list_mutations) {
    all.push_back(
        {name, "list_mutations", "functionalised with lists that may be empty",
         "LibTorch's functionalisation refuses empty lists, such as those of Adam without "
         "amsgrad, and scalars in a tensor that is traced"});
  }
  return all;
}

}  // namespace ahead::tracing
