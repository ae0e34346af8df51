#include "tensors/wrapper_call.h"

#include <ATen/core/enum_tag.h>
#include <c10/core/InferenceMode.h>

#include <iterator>
#include <vector>

#include "ahead/errors.h"

namespace ahead::tensors {
namespace {

thread_local bool is_suspended = false;

using Classes = std::vector<std::shared_ptr<const WrapperTensor>>;

/// The classes among the arguments, each once, in order.
Classes classes_of(c10::ArrayRef<c10::IValue> arguments) {
  Classes classes;
  for (const c10::IValue& argument : arguments) {
    tracing::for_each_tensor(argument, [&](const at::Tensor& tensor) {
      if (!is_wrapper(tensor)) return;
      const auto& inside = as_wrapper(tensor).inside();
      for (const auto& known : classes) {
        if (*known->wrapper_class().type == *inside->wrapper_class().type) return;
      }
      classes.push_back(inside);
    });
  }
  return classes;
}

std::string name_of(const c10::OperatorHandle& op) {
  return c10::toString(op.operator_name());
}

void check_keeps_shape(const c10::OperatorHandle& op) {
  if (!op.hasTag(at::Tag::inplace_view)) return;
  throw Unsupported("subclass", name_of(op) +
                                    ": Metadata mutations are currently not allowed on tensor "
                                    "subclasses. Use the operator that returns a new tensor.");
}

/// The argument that a result is, or is a view of; null: none.
const c10::IValue* find_source(const c10::FunctionSchema& schema, const c10::AliasInfo& result,
                               const std::vector<c10::IValue>& arguments) {
  const c10::IValue* viewed = nullptr;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const c10::AliasInfo* alias = schema.arguments()[i].alias_info();
    if (alias == nullptr || alias->isWrite() != result.isWrite()) continue;
    if (!result.isWrite() && viewed == nullptr) viewed = &arguments[i];
    if (result.isWrite() && alias->beforeSets() == result.beforeSets()) return &arguments[i];
  }
  return viewed;
}

/// Lets a view share the storage of what it is a view of. It must be a tensor of its own.
at::Tensor as_view_of(const at::Tensor& view, const at::Tensor& viewed) {
  if (!is_wrapper(view) || !is_wrapper(viewed)) return view;
  at::Tensor own = view;
  if (view.is_same(viewed))
    own = at::Tensor(as_wrapper(view).shallow_copy_and_detach(c10::VariableVersion(0), true));
  own.unsafeGetTensorImpl()->set_storage_keep_dtype(c10::Storage(viewed.storage()));
  return own;
}

void correct_aliasing(const c10::FunctionSchema& schema, const std::vector<c10::IValue>& arguments,
                      torch::jit::Stack& results) {
  for (size_t i = 0; i < results.size(); ++i) {
    const c10::AliasInfo* alias = schema.returns()[i].alias_info();
    if (alias == nullptr) continue;
    const c10::IValue* source = find_source(schema, *alias, arguments);
    if (source == nullptr) continue;
    if (alias->isWrite()) {
      results[i] = *source;
    } else if (source->isTensor()) {
      const at::Tensor viewed = source->toTensor();
      tracing::map_tensors(results[i],
                           [&](const at::Tensor& view) { return as_view_of(view, viewed); });
    }
  }
}

bool has_aliases(const c10::FunctionSchema& schema) {
  for (const c10::Argument& result : schema.returns()) {
    if (result.alias_info() != nullptr) return true;
  }
  return false;
}

}  // namespace

SuspendedFunctionalization::SuspendedFunctionalization() : before_(is_suspended) {
  is_suspended = true;
}

SuspendedFunctionalization::~SuspendedFunctionalization() {
  is_suspended = before_;
}

bool SuspendedFunctionalization::is_active() {
  return is_suspended;
}

ResumedFunctionalization::ResumedFunctionalization(bool inside_wrapper)
    : before_(c10::impl::tls_local_dispatch_key_set()), was_suspended_(is_suspended) {
  is_suspended = false;
  c10::DispatchKeySet resumed{c10::DispatchKey::Functionalize};
  c10::impl::LocalDispatchKeySet now = before_;
  if (inside_wrapper) {
    resumed = resumed.add(c10::DispatchKey::DeferredInit);
    // Inner tensors have versions of their own, by which saved ones are checked.
    if (!c10::InferenceMode::is_enabled()) resumed = resumed.add(c10::DispatchKey::ADInplaceOrView);
    now.excluded_ = now.excluded_ | c10::autograd_dispatch_keyset;
  }
  now.excluded_ = now.excluded_ - resumed;
  c10::impl::_force_tls_local_dispatch_key_set(now);
}

ResumedFunctionalization::~ResumedFunctionalization() {
  c10::impl::_force_tls_local_dispatch_key_set(before_);
  is_suspended = was_suspended_;
}

void call_wrapper(const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  const c10::FunctionSchema& schema = op.schema();
  check_keeps_shape(op);
  const auto first = stack.end() - static_cast<std::ptrdiff_t>(schema.arguments().size());
  std::vector<c10::IValue> arguments(first, stack.end());
  stack.erase(first, stack.end());
  const Classes classes = classes_of(arguments);
  torch::jit::Stack results;
  bool is_done = false;
  {
    const ResumedFunctionalization inside(/*inside_wrapper=*/true);
    for (size_t i = 0; i < classes.size() && !is_done; ++i) {
      results = arguments;
      is_done = classes[i]->dispatch(op, results);
    }
  }
  if (!is_done) {
    throw Unsupported("subclass", name_of(op) + ": the class " +
                                      classes.front()->wrapper_class().name +
                                      " does not implement it. Let its dispatch do so.");
  }
  if (results.size() != schema.returns().size()) {
    throw UserError("subclass", name_of(op) + ": the dispatch of the class " +
                                    classes.front()->wrapper_class().name + " leaves " +
                                    std::to_string(results.size()) +
                                    " values on the stack, the operator has " +
                                    std::to_string(schema.returns().size()) +
                                    " results. Leave its results there and nothing else.");
  }
  if (has_aliases(schema)) correct_aliasing(schema, arguments, results);
  std::move(results.begin(), results.end(), std::back_inserter(stack));
}

}  // namespace ahead::tensors
