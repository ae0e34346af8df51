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

Family backward_write_family() {
  Family f{"backward writes", 2, {}};
  f.add(with_buffer, FUZZ_VALUE(ScalesBuffer::apply(t[0], t[1])));
  f.add(with_buffer, FUZZ_VALUE(ReadsScaledBuffer::apply(t[0], t[1])));
  f.add(labelled(has_gradient), FUZZ_VALUE(ScalesGradient::apply(t[0])));
  return f;
}

}  // namespace ahead::fuzz
