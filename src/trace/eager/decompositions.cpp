#include "trace/eager/decompositions.h"

#include <ATen/core/Generator.h>
#include <ATen/core/Reduction.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_linalg_eigh.h>
#include <ATen/ops/_linalg_svd.h>
#include <ATen/ops/clone.h>
#include <ATen/ops/ctc_loss.h>
#include <ATen/ops/max_pool1d.h>
#include <ATen/ops/prod.h>
#include <ATen/ops/rrelu.h>
#include <ATen/ops/rrelu_with_noise.h>
#include <ATen/ops/scatter.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <unordered_map>

#include "ahead/errors.h"
#include "tensors/below_tracing.h"
#include "trace/eager/prod_gradient.h"
#include "trace/tracer.h"

namespace ahead::tracing {
namespace {

using at::IntArrayRef;
using at::Tensor;

bool has_gradient(const Tensor& tensor) {
  return tensor.requires_grad() && at::GradMode::is_enabled();
}

/// LibTorch looks for values outside the range first; here the kernel of scatter finds them.
Tensor one_hot(const Tensor& self, int64_t num_classes) {
  TORCH_CHECK(self.scalar_type() == at::kLong,
              "one_hot is only applicable to index tensor of type LongTensor.");
  if (num_classes == -1) num_classes = self.max().item().toLong() + 1;
  TORCH_CHECK(num_classes > 0, "one_hot: the number of classes must be positive, not ",
              num_classes);
  std::vector<int64_t> sizes = self.sizes().vec();
  sizes.push_back(num_classes);
  return at::scatter(at::zeros(sizes, self.options()), -1, self.unsqueeze(-1), 1);
}

Tensor constant(IntArrayRef numbers, at::ScalarType dtype) {
  Tensor real;
  {
    BelowTracing below;
    real = at::tensor(numbers, dtype);
  }
  return Tracer::current()->outside().lift(real);
}

/// For the mean LibTorch writes the lengths into memory of its own.
Tensor ctc_loss(const Tensor& log_probs, const Tensor& targets, IntArrayRef input_lengths,
                IntArrayRef target_lengths, int64_t blank, int64_t reduction, bool zero_infinity) {
  const auto loss = [&](int64_t how) {
    return at::ctc_loss(log_probs, targets, input_lengths, target_lengths, blank, how,
                        zero_infinity);
  };
  if (reduction != at::Reduction::Mean) return loss(reduction);
  const Tensor losses = loss(at::Reduction::None);
  std::vector<int64_t> lengths = target_lengths.vec();
  for (int64_t& length : lengths) length = std::max<int64_t>(length, 1);
  return losses.div(constant(lengths, losses.scalar_type()).to(losses.device())).mean();
}

/// The kernel returns contiguous tensors; the one that functionalisation puts in its place does
/// not.
Tensor rrelu(const Tensor& self, const at::Scalar& lower, const at::Scalar& upper, bool training,
             std::optional<at::Generator> generator) {
  return at::rrelu(self, lower, upper, training, std::move(generator)).contiguous();
}

Tensor rrelu_with_noise(const Tensor& self, Tensor& noise, const at::Scalar& lower,
                        const at::Scalar& upper, bool training,
                        std::optional<at::Generator> generator) {
  return at::rrelu_with_noise(self, noise, lower, upper, training, std::move(generator))
      .contiguous();
}

/// Functionalisation keeps the layout, the kernel does not.
Tensor lift_fresh_copy(const Tensor& self) {
  return at::clone(self, at::MemoryFormat::Contiguous);
}

/// Where no gradient is asked for, the CPU has a kernel of its own, which tensors without data do
/// not reach. It returns contiguous tensors.
Tensor max_pool1d(const Tensor& self, IntArrayRef kernel_size, IntArrayRef stride,
                  IntArrayRef padding, IntArrayRef dilation, bool ceil_mode) {
  const Tensor pooled = at::max_pool1d(self, kernel_size, stride, padding, dilation, ceil_mode);
  return has_gradient(self) || !self.is_cpu() ? pooled : pooled.contiguous();
}

Tensor prod(const Tensor& self, std::optional<at::ScalarType> dtype) {
  const Tensor result = at::prod(self, dtype);
  follow_prod_gradient(result, std::nullopt);
  return result;
}

Tensor prod_over(const Tensor& self, int64_t dim, bool keepdim,
                 std::optional<at::ScalarType> dtype) {
  const Tensor result = at::prod(self, dim, keepdim, dtype);
  follow_prod_gradient(result, ProdDimension{dim, keepdim});
  return result;
}

/// Where a gradient is asked for, LibTorch computes the vectors too, by another path of LAPACK's;
/// for tensors without data it always does.
Tensor linalg_eigvalsh(const Tensor& self, std::string_view uplo) {
  return std::get<0>(at::_linalg_eigh(self, uplo, has_gradient(self)));
}

Tensor linalg_svdvals(const Tensor& self, std::optional<std::string_view> driver) {
  return std::get<1>(at::_linalg_svd(self, /*full_matrices=*/false, has_gradient(self), driver));
}

/// The only operator that set_data calls. What follows would put memory that does not exist into
/// a tensor.
bool refuse_set_data(const Tensor&, const Tensor&) {
  throw Unsupported("trace",
                    "set_data: the function gives a tensor other contents behind autograd's back. "
                    "Use copy_ in no_grad mode, or do it outside.");
}

template <class Function>
c10::KernelFunction kernel(Function function) {
  return c10::KernelFunction::makeFromUnboxedFunction(function);
}

}  // namespace

const c10::KernelFunction* find_decomposition(const std::string& name) {
  static const auto* decompositions = new std::unordered_map<std::string, c10::KernelFunction>{
      {"one_hot", kernel(TORCH_FN(one_hot))},
      {"ctc_loss.IntList", kernel(TORCH_FN(ctc_loss))},
      {"rrelu", kernel(TORCH_FN(rrelu))},
      {"rrelu_with_noise", kernel(TORCH_FN(rrelu_with_noise))},
      {"max_pool1d", kernel(TORCH_FN(max_pool1d))},
      {"linalg_eigvalsh", kernel(TORCH_FN(linalg_eigvalsh))},
      {"linalg_svdvals", kernel(TORCH_FN(linalg_svdvals))},
      {"_has_compatible_shallow_copy_type", kernel(TORCH_FN(refuse_set_data))},
      {"prod", kernel(TORCH_FN(prod))},
      {"prod.dim_int", kernel(TORCH_FN(prod_over))},
      {"lift_fresh_copy", kernel(TORCH_FN(lift_fresh_copy))},
  };
  const auto found = decompositions->find(name);
  return found == decompositions->end() ? nullptr : &found->second;
}

}  // namespace ahead::tracing
