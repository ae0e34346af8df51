#include "fuzz/draft.h"
#include "fuzz/prelude.h"

namespace ahead::fuzz {
namespace {

const std::vector<Number> small = {2.0, 0.5, -1.5, int64_t{2}, int64_t{-1}, int64_t{0}};

Propose one(Filter filter) {
  return [filter](Draft& draft) { draft.take(filter); };
}

Propose with_number(Filter filter) {
  return [filter](Draft& draft) {
    draft.take(filter);
    draft.add_number(small);
  };
}

Propose two(Filter filter) {
  return [filter](Draft& draft) {
    const at::Tensor target = draft.take(filter);
    draft.take(broadcasts_into(target));
  };
}

void three(Draft& draft) {
  const at::Tensor target = draft.take(floating);
  const auto fits = [&](const at::Tensor& tensor) {
    return tensor.scalar_type() == target.scalar_type() && broadcasts_into(target)(tensor);
  };
  draft.take(fits);
  draft.take(fits);
}

Propose part(int64_t rank) {
  return [rank](Draft& draft) {
    draft.take_dim(draft.take(both(numeric, rank_from(rank))));
    draft.add_number(small);
  };
}

void masked(Draft& draft) {
  const at::Tensor target = draft.take(any);
  draft.take(both(boolean, broadcasts_into(target)));
  draft.add_number(small);
}

void matrix_sum(Draft& draft) {
  // How products are summed depends on the layout of the result.
  const auto plain = [](const at::Tensor& tensor) {
    return floating(tensor) && tensor.is_contiguous();
  };
  const at::Tensor target = draft.take(both(plain, rank_from(2, 2)));
  draft.take_or_capture(target.scalar_type(), {target.size(0), 3}, apart_from(target));
  draft.take_or_capture(target.scalar_type(), {3, target.size(1)}, apart_from(target));
}

}  // namespace

Family mutation_family() {
  Family f{"mutation", 7, {}};
  f.add(two(floating), FUZZ_EFFECT(t[0].mul_(t[1])));
  f.add(two(numeric), FUZZ_EFFECT(t[0].add_(t[1])));
  f.add(two(floating), FUZZ_EFFECT(t[0].add_(t[1], 2)));
  f.add(two(floating), FUZZ_EFFECT(t[0].sub_(t[1])));
  f.add(two(floating), FUZZ_EFFECT(t[0].div_(at::square(t[1]) + 1)));
  f.add(two(any), FUZZ_EFFECT(t[0].copy_(t[1])));
  f.add(two(any), FUZZ_EFFECT(t[0].logical_and_(t[1])));
  f.add(two(numeric), FUZZ_EFFECT(t[0].eq_(t[1])));
  f.add(three, FUZZ_EFFECT(t[0].addcmul_(t[1], t[2])));
  f.add(three, FUZZ_EFFECT(t[0].lerp_(t[1], t[2])));
  f.add(with_number(floating), FUZZ_EFFECT(t[0].mul_(s[0])));
  f.add(with_number(floating), FUZZ_EFFECT(t[0].add_(s[0])));
  f.add(with_number(any), FUZZ_EFFECT(t[0].fill_(s[0])));
  f.add(with_number(floating), FUZZ_EFFECT(t[0].clamp_(s[0], 2)));
  f.add(with_number(floating), FUZZ_EFFECT(t[0].clamp_min_(s[0])));
  f.add(with_number(floating), FUZZ_EFFECT(at::leaky_relu_(t[0], s[0])));
  f.add(one(any), FUZZ_EFFECT(t[0].zero_()));
  f.add(one(floating), FUZZ_EFFECT(t[0].sigmoid_()));
  f.add(one(floating), FUZZ_EFFECT(t[0].tanh_()));
  f.add(one(numeric), FUZZ_EFFECT(t[0].relu_()));
  f.add(one(numeric), FUZZ_EFFECT(t[0].neg_()));
  f.add(one(floating), FUZZ_EFFECT(t[0].sin_()));
  f.add(one(numeric), FUZZ_EFFECT(t[0].square_()));
  f.add(one(floating), FUZZ_EFFECT(at::elu_(t[0])));
  f.add(one(floating), FUZZ_EFFECT(at::hardtanh_(t[0])));
  f.add(masked, FUZZ_EFFECT(t[0].masked_fill_(t[1], s[0])));
  f.add(part(1), FUZZ_EFFECT(t[0].select(n[0], 0).mul_(2)));
  f.add(part(1), FUZZ_EFFECT(t[0].select(n[0], -1).fill_(s[0])));
  f.add(part(2), FUZZ_EFFECT(t[0].transpose(0, n[0]).mul_(2)));
  f.add(part(1), FUZZ_EFFECT(t[0].slice(n[0], 0, std::nullopt, 2).add_(t[0].mean())));
  f.add(part(2), FUZZ_EFFECT(t[0].diagonal().zero_()));
  f.add(part(1), FUZZ_EFFECT(t[0].cumsum_(n[0])));
  f.add(part(1), FUZZ_EFFECT(t[0].unbind(n[0]).at(0).mul_(2)));
  f.add(matrix_sum, FUZZ_EFFECT(t[0].addmm_(t[1], t[2])));
  f.add(one(rank_from(2, 4)), FUZZ_EFFECT(t[0].tril_()));
  f.add(one(both(numeric, rank_from(2, 2))), FUZZ_EFFECT(t[0].fill_diagonal_(3)));
  return f;
}

namespace {

/// A target, a dimension of it, and numbers to make indices of.
int64_t target_dim_and_numbers(Draft& draft) {
  const at::Tensor target = draft.take(both(numeric, rank_from(1)));
  const int64_t dim = draft.take_dim(target);
  draft.take(both(integral, rank_from(0)));
  return dim;
}

void take_source(Draft& draft, int64_t dim, int64_t count) {
  const at::Tensor target = draft.operand(0);
  Ints sizes = target.sizes().vec();
  sizes[static_cast<size_t>(dim)] = count;
  // Eager mode reads what it has just written if the two share memory.
  draft.take_or_capture(target.scalar_type(), sizes, apart_from(target));
}

void indexed(Draft& draft) {
  target_dim_and_numbers(draft);
  draft.add_number(small);
}

void indexed_source(Draft& draft) {
  const int64_t dim = target_dim_and_numbers(draft);
  take_source(draft, dim, draft.operand(1).numel());
}

void distinct_source(Draft& draft) {
  const int64_t dim = target_dim_and_numbers(draft);
  const int64_t count = draft.random.between(1, draft.operand(0).size(dim));
  draft.add(count);
  take_source(draft, dim, count);
}

void indexed_rows(Draft& draft) {
  draft.take(both(numeric, rank_from(1)));
  draft.take(both(integral, rank_from(0)));
  take_source(draft, 0, draft.operand(1).numel());
}

void distinct_rows(Draft& draft) {
  const at::Tensor target = draft.take(both(numeric, rank_from(1)));
  draft.take(both(integral, rank_from(0)));
  draft.add(draft.random.between(1, target.size(0)));
  take_source(draft, 0, draft.instruction.n[0]);
}

void scattered(Draft& draft) {
  const at::Tensor target = draft.take(both(numeric, rank_from(1)));
  draft.take_dim(target);
  draft.take(both(both(integral, apart_from(target)), same_shape_as(target)));
  draft.take_or_capture(target.scalar_type(), target.sizes(), apart_from(target));
  draft.add_number(small);
}

void masked_value(Draft& draft) {
  const at::Tensor target = draft.take(both(numeric, rank_from(1)));
  draft.take(both(boolean, same_shape_as(target)));
  draft.take_or_capture(target.scalar_type(), {}, apart_from(target));
}

}  // namespace

Family indexed_mutation_family() {
  Family f{"indexed mutation", 2, {}};
  f.add(indexed, FUZZ_EFFECT(t[0].index_fill_(n[0], indices(t[1], t[0].size(n[0])), s[0])));
  f.add(indexed_source, FUZZ_EFFECT(t[0].index_add_(n[0], indices(t[1], t[0].size(n[0])), t[2])));
  f.add(distinct_source,
        FUZZ_EFFECT(t[0].index_copy_(n[0], distinct(t[1], n[1], t[0].size(n[0])), t[2])));
  f.add(indexed_rows, FUZZ_EFFECT(t[0].index_put_({indices(t[1], t[0].size(0))}, t[2], true)));
  f.add(distinct_rows, FUZZ_EFFECT(t[0].index_put_({distinct(t[1], n[0], t[0].size(0))}, t[2])));
  f.add(masked_value, FUZZ_EFFECT(t[0].index_put_({t[1]}, t[2])));
  f.add(scattered, FUZZ_EFFECT(t[0].scatter_(n[0], t[1].remainder(t[0].size(n[0])), s[0])));
  f.add(scattered, FUZZ_EFFECT(t[0].scatter_add_(n[0], t[1].remainder(t[0].size(n[0])), t[2])));
  f.add(scattered, FUZZ_EFFECT(t[0].masked_scatter_(t[1] > 0, t[2])));
  return f;
}

namespace {

/// Autograd takes a change of shape of a view for a write to all of its base.
bool is_no_tracked_view(const at::Tensor& tensor) {
  return !tensor.requires_grad() || !tensor.is_view();
}

Filter reshapable(int64_t low, int64_t high = 8) {
  return both(is_no_tracked_view, rank_from(low, high));
}

void two_dims(Draft& draft) {
  const at::Tensor tensor = draft.take(reshapable(2));
  draft.take_dim(tensor);
  draft.take_dim(tensor);
}

void new_dim(Draft& draft) {
  const at::Tensor tensor = draft.take(is_no_tracked_view);
  draft.add(draft.random.between(-tensor.dim() - 1, tensor.dim()));
}

void one_dim(Draft& draft) {
  draft.take_dim(draft.take(reshapable(1)));
}

}  // namespace

Family shape_mutation_family() {
  Family f{"shape mutation", 0.7, {}};
  f.add(one(reshapable(2, 2)), FUZZ_EFFECT(t[0].t_()));
  f.add(two_dims, FUZZ_EFFECT(t[0].transpose_(n[0], n[1])));
  f.add(new_dim, FUZZ_EFFECT(t[0].unsqueeze_(n[0])));
  f.add(one_dim, FUZZ_EFFECT(t[0].squeeze_(n[0])));
  f.add(one(reshapable(1)), FUZZ_EFFECT(t[0].squeeze_()));
  return f;
}

}  // namespace ahead::fuzz
