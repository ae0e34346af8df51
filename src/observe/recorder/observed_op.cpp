#include "observe/recorder/observed_op.h"

#include <ATen/core/enum_tag.h>

#include <mutex>
#include <string_view>
#include <unordered_map>

#include "base/thread_object.h"
#include "ops/facts/facts.h"
#include "trace/dispatch/traced_op.h"

namespace ahead::observe {
namespace {

using Holds = ObservedOp::Holds;

Holds holds(const c10::Type& type) {
  switch (type.kind()) {
    case c10::TypeKind::TensorType:
      return Holds::Tensor;
    case c10::TypeKind::OptionalType:
      return holds(*type.containedType(0));
    case c10::TypeKind::ListType: {
      const c10::Type& element = *type.containedType(0);
      if (element.kind() == c10::TypeKind::TensorType) return Holds::List;
      return holds(element) == Holds::Tensor ? Holds::OptionalList : Holds::Nothing;
    }
    default:
      return Holds::Nothing;
  }
}

bool is_unfilled(std::string_view name) {
  return name.starts_with("aten.empty") || name.starts_with("aten.new_empty");
}

/// Whether it fills new memory, and uses at most the metadata of a tensor that it is given.
bool is_new(std::string_view name) {
  const std::string_view base = name.substr(0, name.find('.', sizeof("aten.") - 1));
  return name.starts_with("aten.new_") || (name.starts_with("aten.") && base.ends_with("_like"));
}

}  // namespace

ObservedOp::ObservedOp(const c10::OperatorHandle& h) : handle(h), op(&Operator::of(h)) {
  const c10::FunctionSchema& schema = h.schema();
  bool takes_tensors = false;
  for (const c10::Argument& argument : schema.arguments()) {
    Argument& described = arguments.emplace_back();
    described.holds = holds(*argument.type());
    takes_tensors |= described.holds != Holds::Nothing;
    if (const c10::AliasInfo* alias = argument.alias_info()) {
      described.is_written = alias->isWrite();
      described.is_viewed = !alias->isWrite();
    }
  }
  for (const c10::Argument& result : schema.returns()) {
    results.push_back(holds(*result.type()));
    returns_tensors |= results.back() != Holds::Nothing;
  }
  const tracing::TracedOp& traced = tracing::traced_op(h);
  is_composite = h.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd);
  if (traced.is_autocast_cpu) autocast_keys = autocast_keys.add(c10::DispatchKey::AutocastCPU);
  if (traced.is_autocast_cuda) autocast_keys = autocast_keys.add(c10::DispatchKey::AutocastCUDA);
  reads_value = takes_tensors && !returns_tensors && h.hasTag(at::Tag::data_dependent_output);
  makes_unfilled = is_unfilled(op->name());
  const bool is_of_looks = is_new(op->name()) && !schema.is_mutable();
  is_factory =
      (!takes_tensors || is_of_looks) && results.size() == 1 && results[0] == Holds::Tensor;
  is_random = traced.random;
  is_custom = ops::is_custom(*op);
  is_sized_by_values = !is_composite && h.hasTag(at::Tag::dynamic_output_shape);
  has_decomposition = traced.decomposition != nullptr;
}

const ObservedOp& observed_op(const c10::OperatorHandle& handle) {
  // Never freed: recordings refer to them. Not by handle: another operator may be registered at the
  // address of one that was removed.
  using Map = std::unordered_map<const Operator*, const ObservedOp*>;
  auto& known = thread_object<Map, struct KnownObservedOps>();
  const ObservedOp*& entry = known[&Operator::of(handle)];
  if (entry != nullptr) return *entry;
  static std::mutex mutex;
  static auto* all = new std::unordered_map<const Operator*, const ObservedOp*>;
  std::lock_guard<std::mutex> lock(mutex);
  const ObservedOp*& shared = (*all)[&Operator::of(handle)];
  if (shared == nullptr) shared = new ObservedOp(handle);
  return *(entry = shared);
}

}  // namespace ahead::observe
