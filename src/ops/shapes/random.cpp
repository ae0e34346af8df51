#include <ATen/core/Generator.h>

#include "ops/shapes/families.h"
#include "ops/shapes/make.h"

namespace ahead::ops::shapes {
namespace {

using at::Tensor;
using Generator = std::optional<at::Generator>;
using OptionalDevice = std::optional<at::Device>;
using OptionalFormat = std::optional<at::MemoryFormat>;
using OptionalLayout = std::optional<at::Layout>;
using OptionalType = std::optional<at::ScalarType>;

Tensor multinomial(const Tensor& self, int64_t samples, bool replacement, const Generator&) {
  TORCH_CHECK(self.dim() == 1 || self.dim() == 2, "prob_dist must be 1 or 2 dim");
  TORCH_CHECK(samples > 0, "cannot sample n_sample <= 0 samples");
  TORCH_CHECK(replacement || samples <= self.size(-1),
              "cannot sample n_sample > prob_dist.size(-1) samples without replacement");
  at::DimVector sizes(self.sizes());
  sizes.back() = samples;
  return make(sizes, at::kLong);
}

Tensor sample(const Tensor& self, const Generator&) {
  return make(self.sizes(), self.scalar_type());
}

Tensor binomial(const Tensor& count, const Tensor&, const Generator&) {
  return make(count.sizes(), count.scalar_type());
}

Tensor gamma_grad(const Tensor& self, const Tensor&) {
  return make(self.sizes(), self.scalar_type());
}

Tensor dirichlet_grad(const Tensor& x, const Tensor&, const Tensor&) {
  return make(x.sizes(), x.scalar_type());
}

Tensor randperm(int64_t n, OptionalType dtype, OptionalLayout, OptionalDevice,
                std::optional<bool>) {
  TORCH_CHECK(n >= 0, "n must be non-negative, got", n);
  return make({n}, dtype.value_or(at::kLong));
}

Tensor randperm_with(int64_t n, const Generator&, OptionalType dtype, OptionalLayout layout,
                     OptionalDevice device, std::optional<bool> pin) {
  return randperm(n, dtype, layout, device, pin);
}

Tensor random_like(const Tensor& self, const Tensor&, OptionalType dtype, OptionalLayout,
                   OptionalDevice, std::optional<bool>, OptionalFormat format) {
  const at::ScalarType type = dtype.value_or(self.scalar_type());
  if (format.value_or(at::MemoryFormat::Preserve) == at::MemoryFormat::Preserve)
    return make_like(self, type);
  return make(self.sizes(), type, *format);
}

Tensor randint_like_with(const Tensor& self, const Tensor& high, const Generator&,
                         OptionalType dtype, OptionalLayout layout, OptionalDevice device,
                         std::optional<bool> pin, OptionalFormat format) {
  return random_like(self, high, dtype, layout, device, pin, format);
}

}  // namespace

void add_random_rules(ShapeRules& rules) {
  rules.add("multinomial", TORCH_FN(multinomial));
  rules.add("poisson", TORCH_FN(sample));
  rules.add("binomial", TORCH_FN(binomial));
  rules.add("_standard_gamma", TORCH_FN(sample));
  rules.add("_standard_gamma_grad", TORCH_FN(gamma_grad));
  rules.add("_sample_dirichlet", TORCH_FN(sample));
  rules.add("_dirichlet_grad", TORCH_FN(dirichlet_grad));
  rules.add("randperm", TORCH_FN(randperm));
  rules.add("randperm.generator", TORCH_FN(randperm_with));
  rules.add("randint_like.Tensor", TORCH_FN(random_like));
  rules.add("randint_like.Tensor_generator", TORCH_FN(randint_like_with));
}

}  // namespace ahead::ops::shapes
