#include "checkpoint/operator_calls.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include <unordered_map>

#include "base/thread_object.h"

namespace ahead::runtime {

const c10::StorageImpl* storage_of(const at::Tensor& tensor) {
  return tensor.has_storage() ? tensor.storage().unsafeGetStorageImpl() : nullptr;
}

const Operator* operator_of(const at::RecordFunction& call) {
  // A schema keeps its name where it is for as long as it is registered.
  using Map = std::unordered_map<const char*, const Operator*>;
  auto& known = thread_object<Map, struct KnownOperatorCalls>();
  const auto [found, is_new] = known.emplace(call.name(), nullptr);
  if (is_new) {
    const auto name = call.operator_name();
    const auto handle = name ? c10::Dispatcher::singleton().findOp(*name) : std::nullopt;
    if (handle) found->second = &Operator::of(*handle);
  }
  return found->second;
}

}  // namespace ahead::runtime
