#include "trace/eager/decompositions.h"

#include <ATen/core/Generator.h>
#include <ATen/core/Reduction.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_embedding_bag_backward.h>
#include <ATen/ops/_embedding_bag_sparse_backward.h>
#include <ATen/ops/_linalg_eigh.h>
#include <ATen/ops/_linalg_svd.h>
#include <ATen/ops/clone.h>
#include <ATen/ops/ctc_loss.h>
#include <ATen/ops/embedding_backward.h>
#include <ATen/ops/max_pool1d.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/prod.h>
#include <ATen/ops/rrelu.h>
#include <ATen/ops/rrelu_with_noise.h>
#include <ATen/ops/scatter.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <unordered_map>

#include "ahead/errors.h"
#include "tensors/below_tracing.h"
#include "trace/eager/padded_rows.h"
#include "trace/eager/prod_gradient.h"
#include "trace/tracer.h"

namespace ahead::tracing {
namespace {

using at::IntArrayRef;
using at::Tensor;

bool has_gradient(const Tensor& tensor) {
  return tensor.requires_grad() && at::GradMode::is_enabled();
}

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

Tensor lift_fresh_copy(const Tensor& self) {
  return at::clone(self, at::MemoryFormat::Contiguous);
}

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

Tensor linalg_eigvalsh(const Tensor& self, std::string_view uplo) {
  return std::get<0>(at::_linalg_eigh(self, uplo, has_gradient(self)));
}

Tensor linalg_svdvals(const Tensor& self, std::optional<std::string_view> driver) {
  return std::get<1>(at::_linalg_svd(self, /*full_matrices=*/false, has_gradient(self), driver));
}

Tensor embedding_backward(const Tensor& grad, const Tensor& indices, c10::SymInt num_weights,
                          c10::SymInt padding_idx, bool scale_grad_by_freq, bool sparse) {
  if (sparse && !scale_grad_by_freq && padding_idx != -1)
    return padded_rows(grad, indices, std::move(num_weights), std::move(padding_idx));
  return at::embedding_backward_symint(grad, indices, std::move(num_weights),
                                       std::move(padding_idx), scale_grad_by_freq, sparse);
}

/// For each index the bag that it is in.
Tensor bags_of(const Tensor& indices, const Tensor& offsets) {
  const c10::SymInt count = indices.sym_size(0);
  Tensor bags = at::zeros_symint({count + 1}, offsets.options());
  bags.index_add_(0, offsets, at::ones_like(offsets));
  bags.select(0, 0).sub_(1);
  return bags.cumsum(0, bags.scalar_type()).narrow_symint(0, 0, count);
}

Tensor embedding_bag_backward(const Tensor& grad, const Tensor& indices, const Tensor& offsets,
                              const Tensor& offset2bag, const Tensor& bag_size,
                              const Tensor& maximum_indices, c10::SymInt num_weights,
                              bool scale_grad_by_freq, int64_t mode, bool sparse,
                              const std::optional<Tensor>& per_sample_weights,
                              int64_t padding_idx) {
  if (!sparse) {
    return at::_embedding_bag_backward_symint(
        grad, indices, offsets, offset2bag, bag_size, maximum_indices, std::move(num_weights),
        scale_grad_by_freq, mode, sparse, per_sample_weights, padding_idx);
  }
  const at::ScalarType type = at::promoteTypes(indices.scalar_type(), offsets.scalar_type());
  const bool is_known = indices.sym_numel() == 0 || offset2bag.sym_numel() != 0;
  return at::_embedding_bag_sparse_backward_symint(
      grad, indices.to(type), offsets.to(type),
      is_known ? offset2bag : bags_of(indices, offsets.to(type)), bag_size, std::move(num_weights),
      scale_grad_by_freq, mode, per_sample_weights, padding_idx);
}

bool refuse_set_data(const Tensor&, const Tensor&) {
  throw Unsupported("trace",
                    "set_data: the function gives a tensor other contents behind autograd's back. "
                    "Use copy_ in no_grad mode, or do it outside.");
}

struct Decomposition {
  const char* name;
  c10::KernelFunction kernel;
  const char* file;
  const char* instead;
  const char* reason;
};

template <class Function>
c10::KernelFunction kernel(Function function) {
  return c10::KernelFunction::makeFromUnboxedFunction(function);
}

const std::vector<Decomposition>& decompositions() {
  constexpr const char* here = "decompositions";
  constexpr const char* rrelu_reason =
      "the kernel returns contiguous tensors; the one that functionalisation puts in its place "
      "does not";
  constexpr const char* vectors_reason =
      "where a gradient is asked for, LibTorch computes the vectors too, by another path of "
      "LAPACK's; for tensors without data it always does";
  constexpr const char* prod_reason =
      "eager divides where no element is zero; LibTorch never divides tensors without data";
  static const auto* all = new std::vector<Decomposition>{
      {"one_hot", kernel(TORCH_FN(one_hot)), here, "traced as a `scatter` of ones into zeros",
       "LibTorch looks for values outside the range first; the kernel of `scatter` finds them when "
       "the graph runs"},
      {"ctc_loss.IntList", kernel(TORCH_FN(ctc_loss)), here,
       "for the mean, the losses are divided by the lengths as a constant of the graph",
       "LibTorch writes the lengths into memory of its own"},
      {"rrelu", kernel(TORCH_FN(rrelu)), here, "the result is made contiguous", rrelu_reason},
      {"rrelu_with_noise", kernel(TORCH_FN(rrelu_with_noise)), here,
       "the result is made contiguous", rrelu_reason},
      {"max_pool1d", kernel(TORCH_FN(max_pool1d)), here,
       "on the CPU, without a gradient, the result is made contiguous",
       "there the CPU has a kernel of its own, which returns contiguous tensors and which tensors "
       "without data do not reach"},
      {"linalg_eigvalsh", kernel(TORCH_FN(linalg_eigvalsh)), here,
       "eigenvectors are computed only where a gradient is asked for", vectors_reason},
      {"linalg_svdvals", kernel(TORCH_FN(linalg_svdvals)), here,
       "singular vectors are computed only where a gradient is asked for", vectors_reason},
      {"embedding_backward", kernel(TORCH_FN(embedding_backward)), "padded_rows",
       "a sparse gradient with a padded row is traced as `ahead.padded_rows`",
       "LibTorch looks for the row, and values decide how many others there are"},
      {"_embedding_bag_backward", kernel(TORCH_FN(embedding_bag_backward)), here,
       "a sparse gradient is traced as what its kernel calls",
       "the kernel makes it of indices and values, and in graphs these are values of their own"},
      {"_has_compatible_shallow_copy_type", kernel(TORCH_FN(refuse_set_data)), here,
       "refused (`Unsupported`)",
       "the only operator that `set_data` calls, which would put memory that does not exist into a "
       "tensor"},
      {"prod", kernel(TORCH_FN(prod)), "prod_gradient", "has a gradient node of its own",
       prod_reason},
      {"prod.dim_int", kernel(TORCH_FN(prod_over)), "prod_gradient",
       "has a gradient node of its own", prod_reason},
      {"lift_fresh_copy", kernel(TORCH_FN(lift_fresh_copy)), here, "traced as a contiguous `clone`",
       "functionalisation keeps the layout, the kernel does not"},
  };
  return *all;
}

}  // namespace

const c10::KernelFunction* find_decomposition(const std::string& name) {
  static const auto* kernels = [] {
    auto* by_name = new std::unordered_map<std::string, const c10::KernelFunction*>;
    for (const Decomposition& entry : decompositions()) by_name->emplace(entry.name, &entry.kernel);
    return by_name;
  }();
  const auto found = kernels->find(name);
  return found == kernels->end() ? nullptr : found->second;
}

Departures decomposition_departures() {
  Departures all;
  for (const Decomposition& entry : decompositions())
    all.push_back({entry.name, entry.file, entry.instead, entry.reason});
  return all;
}

}  // namespace ahead::tracing
