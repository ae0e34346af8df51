#include "fuzz/draft.h"

namespace ahead::fuzz {
namespace {

const std::vector<Number> small = {2.0, 0.5, -1.5, 0.25, 1.0, int64_t{2}, int64_t{-1}, 3.0};
const std::vector<Number> positive = {0.5, 2.0, 1.5, int64_t{2}};

Propose one(Filter filter) {
  return [filter](Draft& draft) { draft.take(filter); };
}

Propose with_number(Filter filter, const std::vector<Number>& numbers = small) {
  return [filter, &numbers](Draft& draft) {
    draft.take(filter);
    draft.add_number(numbers);
  };
}

Propose two(Filter filter) {
  return [filter](Draft& draft) {
    const at::Tensor first = draft.take(filter);
    draft.take(both(filter, broadcasts_with(first)));
    if (draft.random.chance(0.5)) {
      std::swap(draft.instruction.operands[0], draft.instruction.operands[1]);
    }
    draft.add_number(small);
  };
}

void three(Draft& draft) {
  const at::Tensor first = draft.take(floating);
  const auto fits = [&](const at::Tensor& tensor) {
    return tensor.scalar_type() == first.scalar_type() && broadcasts_with(first)(tensor);
  };
  const at::Tensor second = draft.take(fits);
  draft.take(both(fits, broadcasts_with(second)));
  draft.add_number(small);
}

void choice(Draft& draft) {
  const at::Tensor first = draft.take(boolean);
  const at::Tensor second = draft.take(broadcasts_with(first));
  draft.take(both(broadcasts_with(first), broadcasts_with(second)));
}

void cast(Draft& draft) {
  draft.take(any);
  draft.instruction.type =
      draft.random.pick<at::ScalarType>({at::kFloat, at::kDouble, at::kBFloat16, at::kLong});
}

}  // namespace

Family pointwise_family() {
  Family f{"pointwise", 5, {}};
  f.add(one(floating), FUZZ_VALUE(at::sigmoid(t[0])));
  f.add(one(floating), FUZZ_VALUE(at::tanh(t[0])));
  f.add(one(numeric), FUZZ_VALUE(at::relu(t[0])));
  f.add(one(any), FUZZ_VALUE(at::exp(at::clamp_max(t[0], 3))));
  f.add(one(any), FUZZ_VALUE(at::sin(t[0])));
  f.add(one(any), FUZZ_VALUE(at::cos(t[0])));
  f.add(one(any), FUZZ_VALUE(at::erf(t[0])));
  f.add(one(any), FUZZ_VALUE(at::atan(t[0])));
  f.add(one(any), FUZZ_VALUE(at::expm1(at::clamp_max(t[0], 3))));
  f.add(one(floating), FUZZ_VALUE(at::gelu(t[0])));
  f.add(one(floating), FUZZ_VALUE(at::gelu(t[0], "tanh")));
  f.add(one(floating), FUZZ_VALUE(at::silu(t[0])));
  f.add(one(floating), FUZZ_VALUE(at::mish(t[0])));
  f.add(one(floating), FUZZ_VALUE(at::softplus(t[0])));
  f.add(one(floating), FUZZ_VALUE(at::log_sigmoid(t[0])));
  f.add(one(floating), FUZZ_VALUE(at::hardswish(t[0])));
  f.add(one(floating), FUZZ_VALUE(at::hardsigmoid(t[0])));
  f.add(one(floating), FUZZ_VALUE(at::frac(t[0])));
  f.add(one(numeric), FUZZ_VALUE(at::abs(t[0])));
  f.add(one(numeric), FUZZ_VALUE(at::neg(t[0])));
  f.add(one(numeric), FUZZ_VALUE(-t[0]));
  f.add(one(any), FUZZ_VALUE(at::square(t[0])));
  f.add(one(any), FUZZ_VALUE(at::sqrt(at::abs(t[0].to(at::kFloat)))));
  f.add(one(any), FUZZ_VALUE(at::log1p(at::square(t[0]))));
  f.add(one(any), FUZZ_VALUE(at::rsqrt(at::square(t[0]) + 1)));
  f.add(one(any), FUZZ_VALUE(at::reciprocal(at::square(t[0]) + 1)));
  f.add(one(numeric), FUZZ_VALUE(at::floor(t[0])));
  f.add(one(numeric), FUZZ_VALUE(at::round(t[0])));
  f.add(one(any), FUZZ_VALUE(at::sign(t[0])));
  f.add(one(any), FUZZ_VALUE(at::isnan(t[0])));
  f.add(one(any), FUZZ_VALUE(at::isfinite(t[0])));
  f.add(one(any), FUZZ_VALUE(at::logical_not(t[0])));
  f.add(one(boolean), FUZZ_VALUE(at::bitwise_not(t[0])));
  f.add(one(integral), FUZZ_VALUE(at::bitwise_not(t[0])));
  f.add(one(floating), FUZZ_VALUE(at::nan_to_num(t[0], 0.5)));
  f.add(with_number(floating), FUZZ_VALUE(at::leaky_relu(t[0], s[0])));
  f.add(with_number(floating, positive), FUZZ_VALUE(at::elu(t[0], s[0])));
  f.add(with_number(floating, positive), FUZZ_VALUE(at::celu(t[0], s[0])));
  f.add(with_number(floating, positive), FUZZ_VALUE(at::hardshrink(t[0], s[0])));
  f.add(with_number(floating), FUZZ_VALUE(at::threshold(t[0], s[0], 0.75)));
  f.add(with_number(numeric), FUZZ_VALUE(at::clamp(t[0], s[0], 2)));
  f.add(with_number(numeric), FUZZ_VALUE(at::clamp_min(t[0], s[0])));
  f.add(with_number(numeric, positive), FUZZ_VALUE(at::pow(t[0], s[0])));
  f.add(with_number(floating), FUZZ_VALUE(at::pow(s[0], t[0])));
  f.add(cast, FUZZ_VALUE(t[0].to(type)));
  f.add(cast, FUZZ_VALUE(t[0].to(type, false, true)));
  f.add(one(any), FUZZ_VALUE(t[0].clone()));
  f.add(one(any), FUZZ_VALUE(t[0].contiguous()));
  f.add(one(any), FUZZ_VALUE(t[0].clone(at::MemoryFormat::Contiguous)));
  return f;
}

Family binary_family() {
  Family f{"binary", 6, {}};
  f.add(two(any), FUZZ_VALUE(t[0] + t[1]));
  f.add(two(numeric), FUZZ_VALUE(at::add(t[0], t[1], 2)));
  f.add(two(numeric), FUZZ_VALUE(t[0] - t[1]));
  f.add(two(any), FUZZ_VALUE(t[0] * t[1]));
  f.add(two(any), FUZZ_VALUE(at::mul(t[0], t[1])));
  f.add(two(numeric), FUZZ_VALUE(at::div(t[0], at::square(t[1]) + 1)));
  f.add(two(numeric), FUZZ_VALUE(at::div(t[0], at::square(t[1]) + 1, "floor")));
  f.add(two(numeric), FUZZ_VALUE(at::remainder(t[0], at::square(t[1]) + 1)));
  f.add(two(any), FUZZ_VALUE(at::maximum(t[0], t[1])));
  f.add(two(any), FUZZ_VALUE(at::minimum(t[0], t[1])));
  f.add(two(floating), FUZZ_VALUE(at::fmax(t[0], t[1])));
  f.add(two(floating), FUZZ_VALUE(at::pow(at::abs(t[0]) + 0.5, t[1].clamp(-2, 2))));
  f.add(two(floating), FUZZ_VALUE(at::atan2(t[0], t[1])));
  f.add(two(floating), FUZZ_VALUE(at::hypot(t[0], t[1])));
  f.add(two(floating), FUZZ_VALUE(at::copysign(t[0], t[1])));
  f.add(two(floating), FUZZ_VALUE(at::xlogy(t[0], at::abs(t[1]))));
  f.add(two(floating), FUZZ_VALUE(at::logaddexp(t[0], t[1])));
  f.add(two(any), FUZZ_VALUE(at::eq(t[0], t[1])));
  f.add(two(any), FUZZ_VALUE(at::lt(t[0], t[1])));
  f.add(two(any), FUZZ_VALUE(t[0] >= t[1]));
  f.add(two(any), FUZZ_VALUE(at::logical_and(t[0], t[1])));
  f.add(two(any), FUZZ_VALUE(at::logical_xor(t[0], t[1])));
  f.add(two(integral), FUZZ_VALUE(at::bitwise_and(t[0], t[1])));
  f.add(two(boolean), FUZZ_VALUE(at::bitwise_or(t[0], t[1])));
  f.add(two(floating), FUZZ_VALUE(at::mse_loss(t[0], t[1], at::Reduction::None)));
  f.add(with_number(any), FUZZ_VALUE(t[0] + s[0]));
  f.add(with_number(numeric), FUZZ_VALUE(t[0] - s[0]));
  f.add(with_number(numeric), FUZZ_VALUE(at::rsub(t[0], s[0])));
  f.add(with_number(any), FUZZ_VALUE(t[0] * s[0]));
  f.add(with_number(any), FUZZ_VALUE(t[0] / s[0]));
  f.add(with_number(any), FUZZ_VALUE(at::gt(t[0], s[0])));
  f.add(with_number(any), FUZZ_VALUE(at::ne(t[0], s[0])));
  f.add(with_number(numeric), FUZZ_VALUE(at::remainder(t[0], s[0])));
  f.add(with_number(numeric), FUZZ_VALUE(at::fmod(t[0], s[0])));
  f.add(three, FUZZ_VALUE(at::addcmul(t[0], t[1], t[2], s[0])));
  f.add(three, FUZZ_VALUE(at::addcdiv(t[0], t[1], at::square(t[2]) + 1, s[0])));
  f.add(three, FUZZ_VALUE(at::lerp(t[0], t[1], t[2])));
  f.add(three, FUZZ_VALUE(at::lerp(t[0], t[1], s[0])));
  f.add(three, FUZZ_VALUE(at::clamp(t[0], t[1], t[2])));
  f.add(choice, FUZZ_VALUE(at::where(t[0], t[1], t[2])));
  f.add(choice, FUZZ_VALUE(at::where(t[0], t[1], 0.5)));
  f.add(choice, FUZZ_VALUE(t[1].masked_fill(t[0], 2)));
  f.add(two(any), FUZZ_VALUE(at::broadcast_tensors(t)[1] * 2));
  return f;
}

}  // namespace ahead::fuzz
