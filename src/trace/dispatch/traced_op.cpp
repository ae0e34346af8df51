#include "trace/dispatch/traced_op.h"

#include <ATen/core/enum_tag.h>

#include <algorithm>
#include <memory>

#include "base/thread_object.h"
#include "ir/signature.h"
#include "ops/facts/facts.h"
#include "ops/facts/sparse_values.h"
#include "ops/shape_rules.h"
#include "random/random_form.h"
#include "trace/eager/decompositions.h"

namespace ahead::tracing {
namespace {

bool holds_tensors(const c10::Type& type) {
  if (type.kind() == c10::TypeKind::TensorType) return true;
  for (const auto& inner : type.containedTypes()) {
    if (holds_tensors(*inner)) return true;
  }
  return false;
}

bool is_device(const c10::Type& type) {
  if (type.kind() == c10::TypeKind::DeviceObjType) return true;
  return type.kind() == c10::TypeKind::OptionalType && is_device(*type.containedType(0));
}

/// The name with the overload, without the namespace; empty for operators outside aten.
std::string aten_name(const c10::OperatorName& name) {
  constexpr size_t prefix = sizeof("aten::") - 1;
  if (name.name.compare(0, prefix, "aten::") != 0) return "";
  std::string text = name.name.substr(prefix);
  return name.overload_name.empty() ? text : text + "." + name.overload_name;
}

bool is_any_of(const Operator& op, std::initializer_list<const char*> names) {
  return std::any_of(names.begin(), names.end(),
                     [&](const char* name) { return op.name() == name; });
}

std::unique_ptr<TracedOp> describe(const c10::OperatorHandle& handle) {
  auto traced = std::make_unique<TracedOp>();
  const c10::FunctionSchema& schema = handle.schema();
  traced->op = &Operator::of(handle);
  traced->drawn = drawn_by(*traced->op);
  traced->num_args = static_cast<int32_t>(schema.arguments().size());
  traced->num_returns = static_cast<int32_t>(schema.returns().size());
  for (int32_t i = 0; i < traced->num_args; ++i) {
    const c10::Argument& arg = schema.arguments()[static_cast<size_t>(i)];
    if (is_device(*arg.type())) traced->device_arg = i;
    if (arg.name() == "pin_memory") traced->pin_memory_arg = i;
    const bool is_state = traced->drawn != nullptr && i < 2;
    if (holds_tensors(*arg.type()) && !is_state) traced->takes_tensors = true;
  }
  for (const c10::Argument& ret : schema.returns()) {
    if (holds_tensors(*ret.type())) traced->returns_tensors = true;
  }
  traced->mutates = schema.is_mutable();
  for (size_t index : written_arguments(*traced->op)) {
    if (schema.arguments()[index].type()->kind() == c10::TypeKind::ListType)
      traced->writes_lists = true;
  }
  traced->is_autocast_cpu = handle.hasKernelForDispatchKey(c10::DispatchKey::AutocastCPU);
  traced->is_autocast_cuda = handle.hasKernelForDispatchKey(c10::DispatchKey::AutocastCUDA);
  traced->is_autocast = traced->is_autocast_cpu || traced->is_autocast_cuda;
  traced->casts_inside =
      is_any_of(*traced->op, {"aten._trilinear", "aten.linalg_pinv.atol_rtol_tensor"});
  traced->keeps_layout = traced->mutates && !handle.hasTag(at::Tag::inplace_view);
  const ops::OpFacts& facts = ops::facts(*traced->op);
  traced->random = facts.random;
  traced->facts = &facts;
  traced->effectful = facts.effectful;
  traced->is_whole = facts.is_whole;
  traced->acts = facts.is_known_effect || (facts.effectful && ops::is_custom(*traced->op));
  traced->pointwise = facts.op_class == ops::OpClass::Pointwise && traced->num_returns == 1;
  traced->is_unfold_backward = traced->op->name() == "aten.unfold_backward";
  traced->makes_sparse = ops::makes_sparse(*traced->op);
  traced->is_transparent = is_any_of(
      *traced->op,
      {"aten._backward", "aten.fill_diagonal_", "aten.linalg_cond", "aten.linalg_cond.p_str",
       "aten.linalg_norm", "aten.linalg_norm.ord_str", "aten.linalg_matrix_norm",
       "aten.linalg_matrix_norm.str_ord", "aten.nuclear_norm", "aten.nuclear_norm.dim",
       "aten.linalg_matrix_rank", "aten.linalg_matrix_rank.tol_tensor",
       "aten.linalg_matrix_rank.atol_rtol_tensor", "aten.linalg_matrix_rank.atol_rtol_float",
       "aten.gru_cell", "aten.gru.input", "aten.gru.data"});
  traced->addresses_storage =
      is_any_of(*traced->op, {"aten.as_strided", "aten.as_strided_", "aten.as_strided_copy",
                              "aten.as_strided_scatter", "aten.fill_diagonal_"});
  traced->changes_views = traced->addresses_storage || (traced->mutates && !traced->keeps_layout);
  traced->is_in_formula =
      is_any_of(*traced->op, {"aten.mul.Tensor", "aten.logical_and", "aten.logical_or"});
  traced->refusal = facts.data_dependent;
  const std::string name = aten_name(handle.operator_name());
  traced->decomposition = find_decomposition(name);
  traced->rule = ops::shape_rules().find(name);
  if (traced->rule != nullptr) {
    traced->inference = TracedOp::Inference::Rule;
  } else if (handle.hasComputedKernelForDispatchKey(c10::DispatchKey::Meta)) {
    traced->inference = TracedOp::Inference::MetaKernel;
    traced->acts_on_meta = traced->acts && !handle.hasKernelForDispatchKey(c10::DispatchKey::Meta);
  }
  return traced;
}

}  // namespace

TracedOp& traced_op(const c10::OperatorHandle& handle) {
  // Not by handle: another operator may be registered at the address of one that was removed.
  struct Known {
    std::unordered_map<const Operator*, std::unique_ptr<TracedOp>> ops;
    std::vector<std::unique_ptr<TracedOp>> outdated;  // handlers may be using them
  };
  auto& known = thread_object<Known, struct KnownTracedOps>();
  const Operator& op = Operator::of(handle);
  auto& entry = known.ops[&op];
  if (entry != nullptr && entry->facts != &ops::facts(op))
    known.outdated.push_back(std::move(entry));
  if (entry == nullptr) entry = describe(handle);
  return *entry;
}

}  // namespace ahead::tracing
