#include "trace/eager_formulas.h"

#include <ATen/ExpandUtils.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/masked_fill.h>
#include <torch/csrc/autograd/function.h>

#include <string>
#include <typeindex>
#include <unordered_map>

#include "trace/tracer.h"

namespace ahead::tracing {
namespace {

enum class Formula : uint8_t { None, Extremum, Clamp };

/// Which formula an autograd node runs, looked up by type: composing its name is slow.
Formula formula_of(const torch::autograd::Node& node) {
  static const auto* formulas = new std::unordered_map<std::string, Formula>{
      {"MaxBackward1", Formula::Extremum},        {"MinBackward1", Formula::Extremum},
      {"MedianBackward0", Formula::Extremum},     {"NanmedianBackward0", Formula::Extremum},
      {"ClampBackward0", Formula::Clamp},         {"ClampBackward1", Formula::Clamp},
      {"ForeachMaxBackward1", Formula::Extremum},
  };
  thread_local std::unordered_map<std::type_index, Formula> known;
  auto [entry, is_new] = known.emplace(std::type_index(typeid(node)), Formula::None);
  if (is_new) {
    auto found = formulas->find(node.name());
    if (found != formulas->end()) entry->second = found->second;
  }
  return entry->second;
}

/// Eager fills zeros where the extremum is; a product with the mask would make zeros of both signs,
/// in another layout.
bool fill_at_extremum(const TracedOp& op, torch::jit::Stack& stack) {
  if (op.op->name() != "aten.mul.Tensor") return false;
  const at::Tensor mask = stack[stack.size() - 2].toTensor();
  const at::Tensor value = stack.back().toTensor();
  if (mask.scalar_type() != at::kBool || !mask.is_cpu()) return false;
  stack.resize(stack.size() - 2);
  stack.emplace_back(at::masked_fill(value.new_zeros_symint(mask.sym_sizes()), mask, value));
  return true;
}

/// Eager combines the two conditions in place.
void check_fits_in_place(const torch::jit::Stack& stack) {
  const at::Tensor& self = stack[stack.size() - 2].toTensor();
  const at::Tensor& other = stack.back().toTensor();
  if (!self.defined() || !other.defined()) return;
  const auto sizes = at::infer_size(self.sizes(), other.sizes());
  TORCH_CHECK(self.sizes() == sizes, "output with shape ", self.sizes(),
              " doesn't match the broadcast shape ", sizes);
}

}  // namespace

bool follow_eager_formula(const TracedOp& op, const Tracer& tracer, torch::jit::Stack& stack) {
  const NodePtr node = tracer.issuer();
  if (!node) return false;
  const Formula formula = formula_of(*node);
  if (formula == Formula::Extremum) return fill_at_extremum(op, stack);
  if (formula == Formula::Clamp && op.op->name() != "aten.mul.Tensor") check_fits_in_place(stack);
  return false;
}

}  // namespace ahead::tracing
