#include "trace/dispatch/real_shapes.h"

#include "ahead/errors.h"
#include "trace/tensor/functional.h"

namespace ahead::tracing {
namespace {

bool has_same_shape(const at::Tensor& a, const at::Tensor& b) {
  return a.sizes() == b.sizes() && a.strides() == b.strides() &&
         a.storage_offset() == b.storage_offset();
}

}  // namespace

TensorMeta geometry_of(const Lifted& lifted) {
  TensorMeta geometry = TensorMeta::of(lifted.wrapper);
  auto* memory = functional_memory(lifted.wrapper);
  // What was written to begins anew.
  geometry.offset += lifted.contents.storage_offset() - memory->base().storage_offset();
  return geometry;
}

void mirror_shape(const Outside& outside, const at::Tensor& reshaped) {
  if (outside.layouts_change() || outside.is_replay()) return;
  for (const Lifted& lifted : outside.lifted()) {
    if (!lifted.wrapper.is_same(reshaped) || has_other_memory(lifted)) continue;
    const TensorMeta shape = geometry_of(lifted);
    lifted.real.unsafeGetTensorImpl()->set_sizes_and_strides(shape.sizes, shape.strides,
                                                             shape.offset.fixed());
  }
}

void restore_shapes(const Outside& outside) {
  if (outside.layouts_change() || outside.is_replay()) return;
  for (const Lifted& lifted : outside.lifted()) {
    const at::Tensor& before = lifted.contents;
    if (has_same_shape(lifted.real, before)) continue;
    lifted.real.unsafeGetTensorImpl()->set_sizes_and_strides(before.sizes(), before.strides(),
                                                             before.storage_offset());
  }
}

/// One as_strided_() stands for all changes of shape; in eager those that autograd did not see
/// leave a history that gives gradients of another shape.
void check_one_history(const Lifted& reshaped) {
  const Value* value = value_of(reshaped.wrapper);
  while (value != reshaped.value && value->producer() != nullptr) {
    const Node& view = *value->producer();
    if (view.args().empty() || !view.args()[0].is_value()) return;
    const Value* before = view.args()[0].value();
    const bool is_same =
        before->meta.sizes == value->meta.sizes && before->meta.strides == value->meta.strides;
    if (view.has(Tag::NoGrad) && !is_same) {
      throw Unsupported("trace",
                        reshaped.value->meta.str() +
                            ": the function changes the shape of this tensor from outside in "
                            "place, both with and without grad mode. Work on a view instead.");
    }
    value = before;
  }
}

}  // namespace ahead::tracing
