#include "fuzz/draft.h"

namespace ahead::fuzz {
namespace {

void shape(Draft& draft) {
  draft.take(rank_from(1));
}

void one_dim(Draft& draft) {
  draft.take_dim(draft.take(rank_from(1)));
}

void two_dims(Draft& draft) {
  const at::Tensor tensor = draft.take(rank_from(2));
  draft.take_dim(tensor);
  draft.take_dim(tensor);
}

void two_different_dims(Draft& draft) {
  const at::Tensor tensor = draft.take(rank_from(2));
  const int64_t first = draft.random.between(0, tensor.dim() - 1);
  draft.add(first);
  draft.add((first + draft.random.between(1, tensor.dim() - 1)) % tensor.dim());
  draft.add(draft.random.between(-1, 1));
}

void permutation(Draft& draft) {
  const at::Tensor tensor = draft.take(rank_from(2));
  for (int64_t dim = 0; dim < tensor.dim(); ++dim) {
    auto& dims = draft.instruction.dims;
    dims.insert(dims.begin() + draft.random.between(0, dim), dim);
  }
}

/// Another shape for the same elements: two dimensions merged, or one split.
void other_shape(Draft& draft) {
  const at::Tensor tensor = draft.take(rank_from(0));
  Ints sizes = tensor.sizes().vec();
  if (sizes.size() > 1 && draft.random.chance(0.6)) {
    const size_t dim = draft.random.below(sizes.size() - 1);
    sizes[dim] *= sizes[dim + 1];
    sizes.erase(sizes.begin() + static_cast<ptrdiff_t>(dim) + 1);
  } else {
    const size_t dim = sizes.empty() ? 0 : draft.random.below(sizes.size());
    const int64_t size = sizes.empty() ? 1 : sizes[dim];
    const int64_t part = size % 2 == 0 ? 2 : size % 3 == 0 ? 3 : 1;
    if (!sizes.empty()) sizes[dim] = size / part;
    sizes.insert(sizes.begin() + static_cast<ptrdiff_t>(dim), part);
  }
  if (draft.random.chance(0.2)) sizes[draft.random.below(sizes.size())] = -1;
  draft.instruction.dims = std::move(sizes);
}

void range_of_dim(Draft& draft) {
  const at::Tensor tensor = draft.take(rank_from(1));
  const int64_t size = tensor.size(draft.take_dim(tensor));
  const int64_t start = draft.random.between(0, size - 1);
  draft.add(start);
  draft.add(draft.random.between(1, size - start));
}

void slice_with_step(Draft& draft) {
  const at::Tensor tensor = draft.take(rank_from(1));
  const int64_t size = tensor.size(draft.take_dim(tensor));
  const int64_t start = draft.random.between(0, size - 1);
  draft.add(start);
  draft.add(draft.random.chance(0.3) ? -1 : draft.random.between(start + 1, size + 1));
  draft.add(draft.random.between(1, 2));
}

void index_of_dim(Draft& draft) {
  const at::Tensor tensor = draft.take(rank_from(1));
  const int64_t size = tensor.size(draft.take_dim(tensor));
  draft.add(draft.random.between(-size, size - 1));
}

void larger_shape(Draft& draft) {
  const at::Tensor tensor = draft.take(any);
  Ints sizes = tensor.sizes().vec();
  for (int64_t& size : sizes) {
    if (size == 1)
      size = draft.random.between(1, 4);
    else if (draft.random.chance(0.3))
      size = -1;
  }
  if (draft.random.chance(0.5)) sizes.insert(sizes.begin(), draft.random.between(1, 3));
  draft.instruction.dims = std::move(sizes);
}

void new_dim(Draft& draft) {
  const at::Tensor tensor = draft.take(any);
  draft.add(draft.random.between(-tensor.dim() - 1, tensor.dim()));
}

void window(Draft& draft) {
  const at::Tensor tensor = draft.take(rank_from(1));
  const int64_t size = tensor.size(draft.take_dim(tensor));
  draft.add(draft.random.between(1, size));
  draft.add(draft.random.between(1, 2));
}

void parts(Draft& draft) {
  const at::Tensor tensor = draft.take(rank_from(1));
  const int64_t size = tensor.size(draft.take_dim(tensor));
  draft.add(draft.random.between(1, size));
}

void two_parts(Draft& draft) {
  const at::Tensor tensor = draft.take(rank_from(1));
  const int64_t size = tensor.size(draft.take_dim(tensor));
  if (size < 2) throw NoFit{};
  const int64_t first = draft.random.between(1, size - 1);
  draft.instruction.dims = {first, size - first};
}

void elements(Draft& draft) {
  const at::Tensor tensor = draft.take(rank_from(1));
  draft.instruction.dims = {draft.random.between(1, std::max<int64_t>(tensor.numel() / 2, 1))};
  draft.add(draft.random.between(1, 2));
}

void pair_of_same_shape(Draft& draft) {
  const at::Tensor tensor = draft.take(any);
  draft.take([&](const at::Tensor& other) { return other.numel() == tensor.numel(); });
}

}  // namespace

Family view_family() {
  Family f{"views", 7, {}};
  f.add(other_shape, FUZZ_VALUE(t[0].view(dims)));
  f.add(other_shape, FUZZ_VALUE(t[0].reshape(dims)));
  f.add(pair_of_same_shape, FUZZ_VALUE(t[0].view_as(t[1])));
  f.add(shape, FUZZ_VALUE(t[0].flatten()));
  f.add(two_dims, FUZZ_VALUE(t[0].transpose(n[0], n[1])));
  f.add(shape, FUZZ_VALUE(t[0].t()));
  f.add(two_dims, FUZZ_VALUE(t[0].movedim(n[0], n[1])));
  f.add(permutation, FUZZ_VALUE(t[0].permute(dims)));
  f.add(slice_with_step, FUZZ_VALUE(t[0].slice(n[0], n[1], n[2], n[3])));
  f.add(slice_with_step, FUZZ_VALUE(t[0].slice(n[0], n[1], std::nullopt, n[3])));
  f.add(range_of_dim, FUZZ_VALUE(t[0].narrow(n[0], n[1], n[2])));
  f.add(index_of_dim, FUZZ_VALUE(t[0].select(n[0], n[1])));
  f.add(shape, FUZZ_VALUE(t[0][0]));
  f.add(shape, FUZZ_VALUE(t[0].index({at::indexing::Slice(0, at::indexing::None, 2)})));
  f.add(shape, FUZZ_VALUE(t[0].index({at::indexing::Ellipsis, at::indexing::None, -1})));
  f.add(larger_shape, FUZZ_VALUE(t[0].expand(dims)));
  f.add(one_dim, FUZZ_VALUE(t[0].squeeze(n[0])));
  f.add(shape, FUZZ_VALUE(t[0].squeeze()));
  f.add(new_dim, FUZZ_VALUE(t[0].unsqueeze(n[0])));
  f.add(two_different_dims, FUZZ_VALUE(t[0].diagonal(n[2], n[0], n[1])));
  f.add(window, FUZZ_VALUE(t[0].unfold(n[0], n[1], n[2])));
  f.add(parts, FUZZ_VALUE(t[0].split(n[1], n[0])));
  f.add(two_parts, FUZZ_VALUE(t[0].split_with_sizes(dims, n[0])));
  f.add(parts, FUZZ_VALUE(t[0].chunk(n[1], n[0])));
  f.add(parts, FUZZ_VALUE(at::tensor_split(t[0], n[1], n[0])));
  f.add(one_dim, FUZZ_VALUE(t[0].unbind(n[0])));
  f.add(elements, FUZZ_VALUE(t[0].as_strided(dims, {n[0]})));
  f.add(elements, FUZZ_VALUE(t[0].as_strided(dims, {n[0]}, 1)));
  return f;
}

}  // namespace ahead::fuzz
