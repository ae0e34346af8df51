#include "engine/part/part_inputs.h"

#include <algorithm>

#include "engine/part/not_traceable.h"
#include "engine/walk/leaf.h"
#include "ir/tensor_meta.h"

namespace ahead::engine {
namespace {

using ArgumentKind = Part::Argument::Kind;

}  // namespace

PartInputs::PartInputs(Part& part, const Backward& backward, const std::vector<Step::Kind>& kinds,
                       const Gradients& gradients, const LiftedSizes& sizes)
    : part_(part),
      backward_(backward),
      gradients_(gradients),
      sizes_(sizes),
      num_held_(backward.num_inputs_before(part.end)) {
  find_places();
  find_unpacked();
  find_leaves(kinds);
  if (sizes_.any()) lift();
  gather();
}

void PartInputs::find_places() {
  std::vector<size_t> places;
  for (size_t i = part_.begin; i < part_.end; ++i) {
    const Step& s = step(i);
    for (uint32_t k = 0; k < s.num_places; ++k) places.push_back(s.first_place + k);
    for (uint32_t k = 0; k < s.num_targets; ++k) {
      const int32_t target = backward_.targets()[s.first_target + k];
      if (target != kNowhere) places.push_back(static_cast<size_t>(target));
    }
  }
  std::sort(places.begin(), places.end());
  places.erase(std::unique(places.begin(), places.end()), places.end());
  for (size_t place : places) {
    const at::Tensor& waiting = gradients_.at(place);
    part_.expected.push_back(
        {place, waiting.defined() ? std::optional(TensorMeta::of(waiting)) : std::nullopt});
  }
}

void PartInputs::find_unpacked() {
  for (size_t i = part_.begin; i < part_.end; ++i) {
    const Step& s = step(i);
    for (size_t k = s.first_hooked; k < s.first_hooked + s.num_hooked; ++k) {
      const at::Tensor& tensor = gradients_.unpacked(k);
      if (!tensor.defined() || tensor.is_conj() || tensor.is_neg() ||
          !is_plain(*tensor.unsafeGetTensorImpl()))
        throw NotTraceable(i, "hooks unpack a tensor that graphs cannot take");
      part_.unpacked.push_back({k, tensor.key_set().raw_repr(), TensorMeta::of(tensor)});
    }
  }
}

void PartInputs::find_leaves(const std::vector<Step::Kind>& kinds) {
  for (size_t i = 0; i < num_held_; ++i) {
    const at::Tensor& input = backward_.inputs()[i];
    if (input.defined()) held_.emplace(input.unsafeGetTensorImpl(), held_.size());
  }
  for (size_t i = part_.begin; i < part_.end; ++i) {
    if (kinds[i] == Step::Kind::Accumulate) part_.accumulations.push_back(describe_leaf(i));
  }
}

Part::Accumulation PartInputs::describe_leaf(size_t index) const {
  const Step& s = step(index);
  const at::Tensor &leaf = leaf_of(s), &grad = grad_of(s);
  Part::Accumulation found{index,         why_deferred(s), leaf.scalar_type(),
                           leaf.device(), leaf.dim(),      {s.first_place, {}}};
  if (!found.is_deferred() && grad.defined()) found.grad.gradient = TensorMeta::of(grad);
  return found;
}

/// Why a graph cannot add to the `.grad` of this leaf; empty: it can.
std::string PartInputs::why_deferred(const Step& s) const {
  const at::Tensor &leaf = leaf_of(s), &grad = grad_of(s);
  const auto& metadata = s.node->input_metadata(0);
  if (is_added_to(leaf)) return "its tensor has another such node";
  if (!takes_gradient(leaf)) return "its tensor is no leaf that requires grad any more";
  if (!is_plain_gradient(leaf.detach())) return "its tensor is not a plain one";
  if (leaf.sym_sizes() != c10::SymIntArrayRef(metadata.shape_as_dim_vector()))
    return "its tensor has other sizes than in the forward";
  if (!grad.defined()) return "";
  if (!is_plain_gradient(grad))
    return "its `.grad` is sparse, has a history or is otherwise special";
  return sizes_.any() && grad.sizes() != leaf.sizes() ? "its `.grad` has other sizes" : "";
}

bool PartInputs::is_added_to(const at::Tensor& leaf) const {
  return std::any_of(part_.accumulations.begin(), part_.accumulations.end(),
                     [&](const auto& one) { return leaf_of(step(one.step)).is_same(leaf); });
}

std::optional<size_t> PartInputs::held_leaf(const at::Tensor& leaf) const {
  const auto found = held_.find(leaf.unsafeGetTensorImpl());
  return found == held_.end() ? std::nullopt : std::optional(found->second);
}

void PartInputs::gather() {
  for (size_t i = 0; i < num_held_; ++i) {
    const at::Tensor& input = backward_.inputs()[i];
    if (input.defined()) add(input, {ArgumentKind::Input, i});
  }
  for (const Part::Unpacked& unpacked : part_.unpacked)
    add(gradients_.unpacked(unpacked.hooked), {ArgumentKind::Unpacked, unpacked.hooked});
  for (const Part::Expected& expected : part_.expected) {
    if (expected.gradient)
      add(gradients_.at(expected.place), {ArgumentKind::Gradient, expected.place});
  }
  for (const Part::Accumulation& accumulation : part_.accumulations) gather_leaf(accumulation);
}

void PartInputs::gather_leaf(const Part::Accumulation& accumulation) {
  if (accumulation.is_deferred()) return;
  const at::Tensor& leaf = leaf_of(step(accumulation.step));
  if (!held_leaf(leaf)) add(leaf, {ArgumentKind::Leaf, accumulation.step});
  if (accumulation.grad.gradient)
    add(grad_of(step(accumulation.step)), {ArgumentKind::Grad, accumulation.step});
}

/// A leaf that requires grad where what it stands for does: what history that has does not matter
/// to formulas, but a few ask whether there is one, and the operators that are recorded differ in
/// grad mode.
void PartInputs::add(const at::Tensor& tensor, Part::Argument argument) {
  tensors_.push_back(tensor.variable_data().set_requires_grad(tensor.requires_grad()));
  part_.arguments.push_back(argument);
}

/// Says how the sizes of all of it may change, in the order of the arguments.
void PartInputs::lift() {
  for (size_t i = 0; i < num_held_; ++i) {
    const at::Tensor& input = backward_.inputs()[i];
    if (!input.defined()) continue;
    const auto first = backward_.sizes_of_input(i);
    TORCH_CHECK(first, "a node holds a tensor that is not a plain one");
    const auto count = static_cast<size_t>(input.dim());
    add_layout(
        {sizes_.dims(*first, count), sizes_.dims(*first + count, count), input.storage_offset()});
  }
  for (Part::Unpacked& unpacked : part_.unpacked) lift_unpacked(unpacked.tensor);
  for (Part::Expected& expected : part_.expected)
    if (expected.gradient) lift_gradient(expected, gradients_.at(expected.place));
  for (Part::Accumulation& accumulation : part_.accumulations) lift_leaf(accumulation);
}

/// A leaf, whose layout no operator asks for, and what is added to.
void PartInputs::lift_leaf(Part::Accumulation& accumulation) {
  if (accumulation.is_deferred()) return;
  const Step& s = step(accumulation.step);
  const at::Tensor& leaf = leaf_of(s);
  if (!held_leaf(leaf)) {
    Layout layout{
        sizes_.dims(backward_.sizes_of_place(s.first_place), static_cast<size_t>(leaf.dim())),
        Dims(leaf.strides()), leaf.storage_offset()};
    if (leaf.is_contiguous()) layout.strides = Layout::contiguous(layout.sizes).strides;
    add_layout(std::move(layout));
  }
  if (accumulation.grad.gradient) lift_gradient(accumulation.grad, grad_of(s));
}

void PartInputs::lift_gradient(Part::Expected& expected, const at::Tensor& gradient) {
  const TensorMeta& meta = *expected.gradient;
  const size_t first = backward_.sizes_of_place(expected.place);
  Layout layout{sizes_.dims(first, meta.sizes.size()), meta.strides, meta.offset};
  expected.is_contiguous = gradient.is_contiguous();
  if (expected.is_contiguous) {
    layout.strides = Layout::contiguous(layout.sizes).strides;
  }
  const std::vector<int64_t>& values = sizes_.guards()->values();
  TORCH_CHECK(layout.describes(gradient, values) &&
                  gradient.strides() == at::IntArrayRef(layout.strides.at(values)),
              "a gradient that waits has other sizes than the tensor it belongs to");
  add_layout(std::move(layout));
}

/// What is unpacked is not known when a backward is looked up. So a size that one of the changing
/// ones has too is taken for that one, which holds or is found not to when the part is looked
/// for.
void PartInputs::lift_unpacked(TensorMeta& meta) {
  const std::vector<int64_t>& values = sizes_.guards()->values();
  const bool is_contiguous = meta.strides == contiguous_strides(meta.sizes);
  for (Dim& size : meta.sizes) {
    const auto same = std::find(values.begin(), values.end(), size.fixed());
    if (size.fixed() > 1 && same != values.end())
      size = Dim::symbol(static_cast<uint32_t>(same - values.begin()));
  }
  if (is_contiguous) meta.strides = contiguous_strides(meta.sizes);
  add_layout({meta.sizes, meta.strides, meta.offset});
}

void PartInputs::add_layout(Layout layout) {
  layouts_.push_back(layout.is_fixed() ? std::nullopt : std::optional(std::move(layout)));
}

}  // namespace ahead::engine
