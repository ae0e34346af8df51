#include "trace/eager/eager_formulas.h"

#include <ATen/ExpandUtils.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/masked_fill.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/generated/Functions.h>

#include <algorithm>
#include <string>
#include <typeindex>
#include <unordered_map>

#include "ahead/errors.h"
#include "base/thread_object.h"
#include "trace/tracer.h"

namespace ahead::tracing {
namespace {

enum class Formula : uint8_t { None, Extremum, Clamp };

/// The formula of each autograd node, by name, whose formula reads values in eager.
const std::unordered_map<std::string, Formula>& formulas() {
  static const auto* all = new std::unordered_map<std::string, Formula>{
      {"MaxBackward1", Formula::Extremum},        {"MinBackward1", Formula::Extremum},
      {"MedianBackward0", Formula::Extremum},     {"NanmedianBackward0", Formula::Extremum},
      {"ClampBackward0", Formula::Clamp},         {"ClampBackward1", Formula::Clamp},
      {"ForeachMaxBackward1", Formula::Extremum},
  };
  return *all;
}

/// Which formula an autograd node runs, looked up by type: composing its name is slow.
Formula formula_of(const torch::autograd::Node& node) {
  auto& known = thread_object<std::unordered_map<std::type_index, Formula>, struct KnownFormulas>();
  auto [entry, is_new] = known.emplace(std::type_index(typeid(node)), Formula::None);
  if (is_new) {
    auto found = formulas().find(node.name());
    if (found != formulas().end()) entry->second = found->second;
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

/// The same for the whole node, gradients that nobody asked for included.
bool fits_in_place(const torch::autograd::generated::ClampBackward0& clamp) {
  const at::Tensor self = clamp.self_.unpack(), min = clamp.min_.unpack(),
                   max = clamp.max_.unpack();
  if (!min.defined() || !max.defined()) return true;
  const auto with_min = at::infer_size(self.sizes(), min.sizes());
  const auto with_max = at::infer_size(self.sizes(), max.sizes());
  const auto all = at::infer_size(with_min, max.sizes());
  const auto is_wanted = [&](size_t input) { return clamp.next_edge(input).is_valid(); };
  return (with_min == all || !(is_wanted(0) || is_wanted(1))) && (with_max == all || !is_wanted(2));
}

}  // namespace

bool follow_eager_formula(const TracedOp& op, const Tracer& tracer, torch::jit::Stack& stack) {
  const NodePtr node = tracer.writer().issuer();
  if (!node) return false;
  const Formula formula = formula_of(*node);
  if (formula == Formula::Extremum) return fill_at_extremum(op, stack);
  if (formula == Formula::Clamp && op.op->name() != "aten.mul.Tensor") check_fits_in_place(stack);
  return false;
}

void check_eager_formula(const torch::autograd::Node& node) {
  if (formula_of(node) != Formula::Clamp) return;
  const auto* clamp = dynamic_cast<const torch::autograd::generated::ClampBackward0*>(&node);
  if (clamp == nullptr) return;
  try {
    if (fits_in_place(*clamp)) return;
  } catch (const c10::Error& error) {
    // What it saved was written to since.
    throw Unsupported("trace", "clamp: LibTorch's backward() throws: " + error.msg());
  }
  throw Unsupported("trace",
                    "clamp: one bound has more dimensions than the tensor and the other bound have "
                    "together, for which LibTorch's backward() throws. Expand them first.");
}

Departures formula_departures() {
  Departures all;
  for (const auto& [node, formula] : formulas()) {
    if (formula == Formula::Extremum) {
      all.push_back({node, "eager_formulas",
                     "zeros are filled with the gradient where the extremum is",
                     "a product with the mask, LibTorch's path for tensors without data, makes "
                     "zeros of both signs, in another layout"});
    } else {
      all.push_back({node, "eager_formulas",
                     "throws where one of its conditions does not fit into the other",
                     "eager combines the conditions in place; LibTorch's path for tensors without "
                     "data does not"});
    }
  }
  std::sort(all.begin(), all.end(),
            [](const Departure& a, const Departure& b) { return a.subject < b.subject; });
  return all;
}

}  // namespace ahead::tracing
