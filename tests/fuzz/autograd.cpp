#include "fuzz/draft.h"
#include "fuzz/prelude.h"

namespace ahead::fuzz {
namespace {

void one(Draft& draft) {
  draft.take(any);
}

void one_floating(Draft& draft) {
  draft.take(floating);
}

bool has_gradient(const at::Tensor& tensor) {
  return tensor.requires_grad();
}

void with_gradient(Draft& draft) {
  draft.take(has_gradient);
}

void with_gradient_and_other(Draft& draft) {
  draft.take(has_gradient);
  draft.take(both(floating, rank_from(0)));
}

void output_and_input(Draft& draft) {
  draft.take(has_gradient);
  draft.take(has_gradient);
}

void product(Draft& draft) {
  const at::Tensor left = draft.take(floating);
  draft.take([&](const at::Tensor& right) {
    return right.scalar_type() == left.scalar_type() && right.sizes() == left.sizes();
  });
}

}  // namespace

Family autograd_family() {
  Family f{"autograd", 2, {}};
  f.add(one_floating, FUZZ_VALUE(ScaledTanh::apply(t[0])));
  f.add(product, FUZZ_VALUE(GatedProduct::apply(t[0], t[1])));
  f.add(with_gradient, FUZZ_VALUE(with_double_gradient(t[0])));
  f.add(with_gradient_and_other, FUZZ_VALUE(with_mixed_gradient(t[0], t[1])));
  f.add(output_and_input, FUZZ_VALUE(gradient_of(t[0], t[1])));
  f.add(output_and_input, FUZZ_VALUE(gradient_of(t[0], t[1])));
  f.add(one, FUZZ_VALUE(t[0].detach()));
  f.add(one_floating, FUZZ_VALUE(t[0].detach().requires_grad_()));
  f.add(with_gradient, FUZZ_VALUE(t[0].clone().detach_()));
  return f;
}

}  // namespace ahead::fuzz
