#include "fuzz/draft.h"
#include "fuzz/prelude.h"

namespace ahead::fuzz {
namespace {

void one_dim(Draft& draft) {
  draft.take_dim(draft.take(rank_from(1)));
}

void one_dim_of_numbers(Draft& draft) {
  draft.take_dim(draft.take(both(numeric, rank_from(1))));
}

/// Two or three tensors that agree in all dimensions but one.
void joinable(Draft& draft) {
  const at::Tensor first = draft.take(rank_from(1));
  const int64_t dim = draft.take_dim(first);
  const auto fits = [&](const at::Tensor& tensor) {
    if (tensor.dim() != first.dim()) return false;
    for (int64_t i = 0; i < first.dim(); ++i) {
      if (i != dim && tensor.size(i) != first.size(i)) return false;
    }
    return true;
  };
  draft.take(fits);
  if (draft.random.chance(0.3)) draft.take(fits);
}

void stackable(Draft& draft) {
  const at::Tensor first = draft.take(any);
  draft.take(same_shape_as(first));
  draft.add(draft.random.between(-first.dim() - 1, first.dim()));
}

void indexed(Draft& draft) {
  draft.take_dim(draft.take(rank_from(1)));
  draft.take(both(integral, rank_from(0)));
}

void gathered(Draft& draft) {
  const at::Tensor source = draft.take(rank_from(1));
  draft.take_dim(source);
  draft.take(both(integral, same_shape_as(source)));
}

void indexed_twice(Draft& draft) {
  draft.take(rank_from(2));
  draft.take(both(integral, rank_from(0)));
}

void top(Draft& draft) {
  const at::Tensor tensor = draft.take(both(numeric, rank_from(1)));
  const int64_t size = tensor.size(draft.take_dim(tensor));
  draft.add(draft.random.between(1, size));
}

void whole(Draft& draft) {
  draft.take(rank_from(1));
}

void matrix(Draft& draft) {
  draft.take(rank_from(2));
  draft.add(draft.random.between(-1, 1));
}

void rolled(Draft& draft) {
  draft.take_dim(draft.take(rank_from(1)));
  draft.add(draft.random.between(-2, 2));
}

void repeated(Draft& draft) {
  const at::Tensor tensor = draft.take(both(rank_from(1), rank_from(1, 3)));
  draft.instruction.dims.assign(static_cast<size_t>(tensor.dim()), 1);
  draft.instruction.dims[draft.random.below(draft.instruction.dims.size())] = 2;
}

void padded(Draft& draft) {
  draft.take(rank_from(1));
  draft.instruction.dims = {draft.random.between(0, 2), draft.random.between(-1, 1)};
}

void sizes(Draft& draft) {
  for (int64_t i = draft.random.between(1, 3); i > 0; --i) {
    draft.instruction.dims.push_back(draft.random.between(1, 4));
  }
  draft.instruction.type = draft.random.pick<at::ScalarType>(
      {at::kFloat, at::kFloat, at::kDouble, at::kLong, at::kBool});
}

void count(Draft& draft) {
  draft.add(draft.random.between(1, 6));
}

}  // namespace

Family shaping_family() {
  Family f{"shaping", 4, {}};
  f.add(joinable, FUZZ_VALUE(at::cat(t, n[0])));
  f.add(joinable, FUZZ_VALUE(at::cat(t, n[0])));
  f.add(stackable, FUZZ_VALUE(at::stack(t, n[0])));
  f.add(indexed, FUZZ_VALUE(t[0].index_select(n[0], indices(t[1], t[0].size(n[0])))));
  f.add(indexed_twice, FUZZ_VALUE(t[0].index({indices(t[1], t[0].size(0))})));
  f.add(indexed_twice,
        FUZZ_VALUE(t[0].index({at::indexing::Slice(), indices(t[1], t[0].size(1))})));
  f.add(gathered, FUZZ_VALUE(t[0].gather(n[0], t[1].remainder(t[0].size(n[0])))));
  f.add(gathered, FUZZ_VALUE(at::take_along_dim(t[0], t[1].remainder(t[0].size(n[0])), n[0])));
  f.add(one_dim, FUZZ_VALUE(at::sort(t[0], n[0])));
  f.add(one_dim, FUZZ_VALUE(at::sort(t[0], true, n[0], true)));
  f.add(one_dim_of_numbers, FUZZ_VALUE(at::argsort(t[0], n[0])));
  f.add(top, FUZZ_VALUE(at::topk(t[0], n[1], n[0])));
  f.add(top, FUZZ_VALUE(at::kthvalue(t[0], n[1], n[0])));
  f.add(one_dim, FUZZ_VALUE(at::flip(t[0], {n[0]})));
  f.add(rolled, FUZZ_VALUE(at::roll(t[0], {n[1]}, {n[0]})));
  f.add(repeated, FUZZ_VALUE(t[0].repeat(dims)));
  f.add(repeated, FUZZ_VALUE(at::tile(t[0], dims)));
  f.add(one_dim, FUZZ_VALUE(at::repeat_interleave(t[0], 2, n[0])));
  f.add(matrix, FUZZ_VALUE(at::triu(t[0], n[0])));
  f.add(matrix, FUZZ_VALUE(at::tril(t[0], n[0])));
  f.add(whole, FUZZ_VALUE(at::diag_embed(t[0])));
  f.add(padded, FUZZ_VALUE(at::constant_pad_nd(t[0], dims, 1)));
  f.add(whole, FUZZ_VALUE(at::zeros_like(t[0])));
  f.add(whole, FUZZ_VALUE(at::ones_like(t[0], at::kFloat)));
  f.add(whole, FUZZ_VALUE(at::full_like(t[0], 2)));
  f.add(whole, FUZZ_VALUE(at::empty_like(t[0]).fill_(1)));
  f.add(whole, FUZZ_VALUE(t[0].new_zeros({2, 3})));
  f.add(sizes, FUZZ_VALUE(at::zeros(dims, type)));
  f.add(sizes, FUZZ_VALUE(at::ones(dims, type)));
  f.add(sizes, FUZZ_VALUE(at::full(dims, 1.5)));
  f.add(count, FUZZ_VALUE(at::arange(n[0])));
  f.add(count, FUZZ_VALUE(at::linspace(-1, 1, n[0])));
  f.add(count, FUZZ_VALUE(at::eye(n[0], at::kDouble)));
  f.add(count, FUZZ_VALUE(at::scalar_tensor(n[0], at::kFloat)));
  return f;
}

}  // namespace ahead::fuzz
