#include "engine/part/lifted_sizes.h"

#include "ir/sizes/expression_node.h"
#include "ir/sizes/layout.h"

namespace ahead::engine {

LiftedSizes::LiftedSizes(Backward& backward, const ChangingSizes* sizes)
    : backward_(backward),
      pattern_(sizes == nullptr ? nullptr : &sizes->pattern),
      guards_(sizes == nullptr ? nullptr : std::make_shared<SizeGuards>(sizes->values)) {}

Dim LiftedSizes::dim(size_t position) const {
  const int32_t symbol = pattern_->symbol(position);
  if (symbol == SizePattern::kFixed) return backward_.sizes()[position];
  return Dim::symbol(static_cast<uint32_t>(symbol));
}

Dims LiftedSizes::dims(size_t first, size_t count) const {
  Dims dims;
  for (size_t i = 0; i < count; ++i) dims.push_back(dim(first + i));
  return dims;
}

/// A size that does not change is no Dim: it may be a floating-point number by its bits.
c10::SymInt LiftedSizes::held_size(size_t position) const {
  if (pattern_->symbol(position) == SizePattern::kFixed) return backward_.sizes()[position];
  return to_sym_int(dim(position), guards_);
}

void LiftedSizes::lift_held(std::vector<std::optional<c10::SymInt>>& held) const {
  for (const Step& step : backward_.steps()) {
    for (uint32_t i = 0; i < step.num_size_inputs; ++i)
      held[step.first_size_input + i] = held_size(step.first_size + i);
  }
}

void LiftedSizes::lift_numbers() const {
  auto& numbers = backward_.call().lifted_ivalue_args.args;
  for (size_t i = 0; i < numbers.size(); ++i) {
    const c10::IValue& now = *numbers[i].actual_ptr;
    const auto position = any() ? backward_.size_of_number(i) : std::nullopt;
    numbers[i].proxy = position ? number(now, *position) : now;
  }
}

/// What stands for the number of a custom function that is at this position.
c10::IValue LiftedSizes::number(const c10::IValue& now, size_t position) const {
  const int32_t symbol = pattern_->symbol(position);
  if (symbol == SizePattern::kFixed) return now;
  if (!now.isDouble()) return to_sym_int(dim(position), guards_);
  return FloatNode::make(FloatExpression::symbol(static_cast<uint32_t>(symbol)), guards_);
}

std::vector<std::optional<torch::autograd::InputMetadata>> LiftedSizes::metadata(
    const Step& step) const {
  std::vector<std::optional<torch::autograd::InputMetadata>> lifted(step.num_targets);
  for (uint32_t i = 0; i < step.num_targets; ++i) {
    const int32_t target = backward_.targets()[step.first_target + i];
    if (target == kNowhere) continue;
    const torch::autograd::Edge& edge = step.node->next_edge(i);
    const auto& known = edge.function->input_metadata(edge.input_nr);
    if (known.was_default_constructed()) continue;
    const size_t first = backward_.sizes_of_place(static_cast<size_t>(target));
    const auto shape = to_sym_ints(dims(first, known.shape_as_dim_vector().size()), guards_);
    lifted[i].emplace(known.options(), torch::autograd::SymIntSmallVec(shape.begin(), shape.end()),
                      known.is_tensor_subclass(), /*is_nested=*/false, known.grad_dtype());
  }
  return lifted;
}

}  // namespace ahead::engine
