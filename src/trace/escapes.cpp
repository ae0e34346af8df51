#include "trace/escapes.h"

#include <algorithm>
#include <unordered_set>

#include "ops/node_facts.h"
#include "trace/fake_tensor.h"
#include "trace/functional.h"

namespace ahead::tracing {
namespace {

/// The value of a tensor that is all of its memory, which the forward made; else null.
Value* whole_value(const at::Tensor& traced) {
  if (traced.is_inference() || traced.requires_grad() || traced.is_view()) return nullptr;
  const at::FunctionalTensorWrapper& wrapper = functional_wrapper(traced);
  if (!wrapper.is_up_to_date()) return nullptr;
  Value* value = as_fake(wrapper.value()).value();
  const bool is_made = value->producer() != nullptr && value->producer()->phase == Phase::Forward;
  return is_made && as_fake(functional_memory(traced)->base()).value() == value ? value : nullptr;
}

}  // namespace

bool add_escapes(Capture& capture, const Escaped& escaped) {
  std::unordered_set<const Value*> roots, held;
  for (const Graph::Output& output : capture.graph.outputs()) {
    if (output.value != nullptr) roots.insert(ops::root_of(output.value));
  }
  std::vector<Value*> values;
  for (const at::Tensor& tensor : escaped.tensors) {
    Value* value = whole_value(tensor);
    if (value == nullptr || !roots.insert(ops::root_of(value)).second) return false;
    values.push_back(value);
    held.insert(value);
  }
  const auto is_held = [&](const Value* value) { return held.count(value) != 0; };
  if (!std::all_of(escaped.values.begin(), escaped.values.end(), is_held)) return false;
  for (size_t i = 0; i < values.size(); ++i) {
    const Slot slot{Slot::Kind::Output, static_cast<int32_t>(capture.results.size())};
    capture.graph.add_output(values[i], slot);
    ResultFacts facts;
    facts.kind = ResultFacts::Kind::Fresh;
    facts.value = facts.root = values[i];
    capture.results.push_back(facts);
    capture.escapes.push_back(escaped.tensors[i]);
  }
  return true;
}

void settle_escape(const at::Tensor& traced, const at::Tensor& computed) {
  // Not what the wrapper would do, which is to wrap the other tensor as well.
  traced.unsafeGetTensorImpl()->c10::TensorImpl::shallow_copy_from(computed.getIntrusivePtr());
}

}  // namespace ahead::tracing
