#include <torch/headeronly/version.h>

#include "fuzz/draft.h"

namespace ahead::fuzz {
namespace {

Filter like(const at::Tensor& other, Filter filter) {
  return [dtype = other.scalar_type(), filter](const at::Tensor& tensor) {
    return tensor.scalar_type() == dtype && filter(tensor);
  };
}

Filter has_size(int64_t dim, int64_t size) {
  return [=](const at::Tensor& tensor) {
    return tensor.dim() >= std::max(dim + 1, -dim) && tensor.size(dim) == size;
  };
}

/// Two tensors of these ranks whose last and second last (or only) dimensions agree.
Propose product(int64_t low_a, int64_t high_a, int64_t low_b, int64_t high_b) {
  return [=](Draft& draft) {
    const at::Tensor a = draft.take(both(floating, rank_from(low_a, high_a)));
    const auto fits = [&](const at::Tensor& b) {
      return b.size(b.dim() > 1 ? -2 : -1) == a.size(-1);
    };
    draft.take(like(a, both(rank_from(low_b, high_b), fits)));
  };
}

/// Two matrices, or batches of them, that agree in the last dimension.
void same_last_dim(Draft& draft) {
  const at::Tensor a = draft.take(both(floating, rank_from(2, 4)));
  draft.take(like(a, both(rank_from(2, 2), has_size(-1, a.size(-1)))));
}

void with_parameter(Draft& draft) {
  const at::Tensor a = draft.take(both(floating, rank_from(1, 4)));
  const int64_t features = draft.random.between(1, 4);
  draft.take_or_capture(a.scalar_type(), {features, a.size(-1)});
  draft.take_or_capture(a.scalar_type(), {features});
}

void square_of(Draft& draft) {
  draft.take(both(floating, rank_from(2, 3)));
}

void vectors(Draft& draft) {
  const at::Tensor a = draft.take(both(floating, rank_from(1, 1)));
  draft.take(like(a, both(rank_from(1, 1), has_size(0, a.size(0)))));
}

void any_vectors(Draft& draft) {
  const at::Tensor a = draft.take(both(floating, rank_from(1, 1)));
  draft.take(like(a, rank_from(1, 1)));
}

void batches(Draft& draft) {
  const at::Tensor a = draft.take(both(floating, rank_from(3, 3)));
  const auto fits = [&](const at::Tensor& b) {
    return b.size(0) == a.size(0) && b.size(1) == a.size(2);
  };
  draft.take(like(a, both(rank_from(3, 3), fits)));
}

void sum_product(Draft& draft) {
  product(2, 2, 2, 2)(draft);
  const at::Tensor &a = draft.operand(0), &b = draft.operand(1);
  draft.take_or_capture(a.scalar_type(), {a.size(0), b.size(1)});
}

}  // namespace

Family matmul_family() {
  Family f{"matmul", 2.5, {}};
  f.add(product(1, 4, 1, 4), FUZZ_VALUE(at::matmul(t[0], t[1])));
  f.add(product(2, 2, 2, 2), FUZZ_VALUE(at::mm(t[0], t[1])));
  f.add(product(2, 2, 2, 2), FUZZ_VALUE(at::einsum("ij,jk->ki", t)));
  f.add(product(2, 2, 1, 1), FUZZ_VALUE(at::mv(t[0], t[1])));
  f.add(same_last_dim, FUZZ_VALUE(at::matmul(t[0], t[1].t())));
  f.add(same_last_dim, FUZZ_VALUE(at::linear(t[0], t[1])));
  f.add(with_parameter, FUZZ_VALUE(at::linear(t[0], t[1], t[2])));
  f.add(with_parameter, FUZZ_VALUE(at::matmul(t[0], t[1].t()) + t[2]));
  f.add(square_of, FUZZ_VALUE(at::matmul(t[0], t[0].transpose(-1, -2))));
  f.add(vectors, FUZZ_VALUE(at::dot(t[0], t[1])));
  f.add(any_vectors, FUZZ_VALUE(at::outer(t[0], t[1])));
  f.add(batches, FUZZ_VALUE(at::bmm(t[0], t[1])));
  f.add(sum_product, FUZZ_VALUE(at::addmm(t[2], t[0], t[1])));
  f.add(sum_product, FUZZ_VALUE(at::addmm(t[2], t[0], t[1], 0.5, 2)));
  return f;
}

namespace {

void whole(Draft& draft) {
  draft.take(rank_from(0));
}

void whole_floating(Draft& draft) {
  draft.take(both(floating, rank_from(0)));
}

Propose along(Filter filter) {
  return [filter](Draft& draft) {
    draft.take_dim(draft.take(both(filter, rank_from(1))));
    draft.add(draft.random.between(0, 1));
  };
}

void along_several(Draft& draft) {
  const at::Tensor tensor = draft.take(both(floating, rank_from(1)));
  for (int64_t dim = 0; dim < tensor.dim(); ++dim) {
    if (draft.random.chance(0.5)) draft.instruction.dims.push_back(dim);
  }
  if (draft.instruction.dims.empty()) draft.instruction.dims.push_back(-1);
  draft.add(draft.random.between(0, 1));
}

void along_two_or_more(Draft& draft) {
  const at::Tensor tensor = draft.take(both(floating, rank_from(1)));
  if (tensor.size(draft.take_dim(tensor)) < 2) throw NoFit{};
  draft.add(draft.random.between(0, 1));
}

}  // namespace

Family reduction_family() {
  Family f{"reduction", 3, {}};
  f.add(whole, FUZZ_VALUE(at::sum(t[0])));
  f.add(whole_floating, FUZZ_VALUE(at::mean(t[0])));
  f.add(whole_floating, FUZZ_VALUE(at::amax(t[0])));
  f.add(whole_floating, FUZZ_VALUE(at::max(t[0])));
  f.add(whole_floating, FUZZ_VALUE(at::min(t[0])));
  f.add(whole_floating, FUZZ_VALUE(at::norm(t[0] + 1)));
  f.add(whole_floating, FUZZ_VALUE(at::var(t[0], false)));
  f.add(whole, FUZZ_VALUE(at::any(t[0])));
  f.add(whole, FUZZ_VALUE(at::argmax(t[0].to(at::kFloat))));
  f.add(along(any), FUZZ_VALUE(at::sum(t[0], {n[0]}, n[1])));
  f.add(along_several, FUZZ_VALUE(at::sum(t[0], dims, n[0])));
  f.add(whole, FUZZ_VALUE(at::prod(t[0])));
  f.add(along(any), FUZZ_VALUE(at::prod(t[0], n[0], n[1])));
  f.add(along_several, FUZZ_VALUE(at::mean(t[0], dims, n[0])));
  f.add(along_several, FUZZ_VALUE(at::amax(t[0], dims, n[0])));
  f.add(along_several, FUZZ_VALUE(at::amin(t[0], dims, n[0])));
  f.add(along_several, FUZZ_VALUE(at::logsumexp(t[0], dims, n[0])));
  f.add(along_several, FUZZ_VALUE(at::norm(t[0] + 1, 2, dims, n[0])));
  f.add(along_several, FUZZ_VALUE(at::var(t[0], dims, false, n[0])));
  f.add(along(floating), FUZZ_VALUE(at::mean(t[0], {n[0]}, n[1])));
  f.add(along_two_or_more, FUZZ_VALUE(at::std(t[0], {n[0]}, true, n[1])));
  f.add(along_two_or_more, FUZZ_VALUE(at::var_mean(t[0], {n[0]}, true, n[1])));
  f.add(along(any), FUZZ_VALUE(at::max(t[0], n[0], n[1])));
  f.add(along(numeric), FUZZ_VALUE(at::min(t[0], n[0], n[1])));
  // Eager's median reads memory nobody wrote when the dimension is expanded.
  f.add(along(floating), FUZZ_VALUE(at::median(t[0].contiguous(), n[0], n[1])));
  f.add(along(numeric), FUZZ_VALUE(at::argmin(t[0], n[0], n[1])));
  f.add(along(any), FUZZ_VALUE(at::all(t[0], n[0], n[1])));
  f.add(along(any), FUZZ_VALUE(at::count_nonzero(t[0], at::IntArrayRef{n[0]})));
  f.add(along(numeric), FUZZ_VALUE(at::cumsum(t[0], n[0])));
  // Before LibTorch 2.13, eager has another formula for the gradient of tensors without zeros.
  const Filter may_be_cumprod = [](const at::Tensor& t) {
    return numeric(t) && (TORCH_VERSION_MINOR >= 13 || !t.requires_grad());
  };
  f.add(along(may_be_cumprod), FUZZ_VALUE(at::cumprod(t[0], n[0])));
  f.add(along(floating), FUZZ_VALUE(at::logcumsumexp(t[0], n[0])));
  f.add(along(floating), FUZZ_VALUE(at::cummax(t[0], n[0])));
  f.add(along(floating), FUZZ_VALUE(at::linalg_vector_norm(t[0] + 1, 2, n[0], n[1])));
  return f;
}

}  // namespace ahead::fuzz
