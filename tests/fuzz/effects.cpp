#include "fuzz/draft.h"
#include "fuzz/prelude.h"

namespace ahead::fuzz {
namespace {

Propose labelled(Filter filter) {
  return [filter](Draft& draft) {
    draft.take(filter);
    draft.add(draft.random.between(0, 99));
  };
}

bool has_gradient(const at::Tensor& tensor) {
  return tensor.requires_grad();
}

/// A tensor with a gradient, and one of the same type and shape that backwards may write to.
void with_buffer(Draft& draft) {
  const at::Tensor tensor = draft.take(has_gradient);
  draft.take_or_capture(tensor.scalar_type(), tensor.sizes(), apart_from(tensor));
}

}  // namespace

Family effect_family() {
  Family f{"effects", 5, {}};
  f.add(labelled(any), FUZZ_EFFECT(note(n[0], t[0])));
  f.add(labelled(any), FUZZ_EFFECT(note(n[0], t[0])));
  f.add(labelled(any), FUZZ_VALUE(noted_copy(n[0], t[0])));
  f.add(labelled(floating), FUZZ_VALUE(noted_square(t[0])));
  f.add(labelled(has_gradient), FUZZ_VALUE(with_noted_gradient(n[0], t[0])));
  f.add(labelled(has_gradient), FUZZ_VALUE(with_noted_gradient(n[0], t[0])));
  f.add(labelled(floating), FUZZ_VALUE(noted_checkpoint(n[0], t[0])));
  return f;
}

namespace {

void dropped(Draft& draft) {
  draft.take(both(floating, rank_from(1)));
  draft.add_number({0.5, 0.25, 0.0});
}

void product(Draft& draft) {
  const at::Tensor left = draft.take(both(floating, rank_from(2, 3)));
  draft.take_or_capture(left.scalar_type(), {left.size(-1), draft.random.between(1, 4)});
}

}  // namespace

Family region_family() {
  Family f{"regions", 3, {}};
  f.add(product, FUZZ_VALUE(checkpointed_layer(t[0], t[1])));
  f.add(product, FUZZ_VALUE(checkpointed_autocast(t[0], t[1])));
  f.add(product, FUZZ_VALUE(checkpointed_twice(t[0], t[1])));
  f.add(dropped, FUZZ_VALUE(at::dropout(t[0], s[0], false)));
  f.add(dropped, FUZZ_VALUE(at::alpha_dropout(t[0], s[0], false)));
  f.add(dropped, FUZZ_EFFECT(at::dropout_(t[0], s[0], false)));
  return f;
}

Family backward_write_family() {
  Family f{"backward writes", 2, {}};
  f.add(with_buffer, FUZZ_VALUE(ScalesBuffer::apply(t[0], t[1])));
  f.add(with_buffer, FUZZ_VALUE(ReadsScaledBuffer::apply(t[0], t[1])));
  f.add(labelled(has_gradient), FUZZ_VALUE(ScalesGradient::apply(t[0])));
  return f;
}

}  // namespace ahead::fuzz
