#include "trace/sizes/symbolic_rows.h"

namespace ahead::tracing {
namespace {

using c10::SymInt;
using Call = SymbolicCall;
using Sizes = SymbolicCall::Sizes;
using Layouts = std::vector<SymbolicLayout>;

/// Along the dimensions that an argument lists, which keep the length one if the next one says so.
template <size_t Dims>
Layouts reduction(const Call& call) {
  Sizes sizes = call.sizes(0);
  std::vector<bool> reduced(sizes.size(), call.arguments[Dims].isNone());
  if (!call.arguments[Dims].isNone()) {
    const bool is_one = call.arguments[Dims].isInt();
    const auto dims = is_one ? std::vector<int64_t>{call.number(Dims)} : call.numbers(Dims);
    if (dims.empty()) reduced.assign(sizes.size(), true);
    for (int64_t dim : dims)
      if (!sizes.empty()) reduced[wrap_dim(dim, sizes.size())] = true;
  }
  Sizes kept;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (reduced[i] && !call.flag(Dims + 1)) continue;
    kept.push_back(reduced[i] ? SymInt(1) : sizes[i]);
  }
  return Layouts(call.results.size(), SymbolicLayout::contiguous(kept));
}

Layouts full_reduction(const Call&) {
  return {SymbolicLayout{}};
}

Layouts mm(const Call& call) {
  return {SymbolicLayout::contiguous({call.sizes(0)[0], call.sizes(1)[1]})};
}

Layouts addmm(const Call& call) {
  return {SymbolicLayout::contiguous({call.sizes(1)[0], call.sizes(2)[1]})};
}

Layouts bmm(const Call& call) {
  return {SymbolicLayout::contiguous({call.sizes(0)[0], call.sizes(0)[1], call.sizes(1)[2]})};
}

Layouts baddbmm(const Call& call) {
  return {SymbolicLayout::contiguous({call.sizes(1)[0], call.sizes(1)[1], call.sizes(2)[2]})};
}

Layouts mv(const Call& call) {
  return {SymbolicLayout::contiguous({call.sizes(0)[0]})};
}

Layouts addr(const Call& call) {
  return {SymbolicLayout::contiguous({call.sizes(1)[0], call.sizes(2)[0]})};
}

Layouts addmv(const Call& call) {
  return {SymbolicLayout::contiguous({call.sizes(1)[0]})};
}

/// Results with the sizes that an argument lists, row by row.
template <size_t Argument>
Layouts listed(const Call& call) {
  return {SymbolicLayout::contiguous(call.list(Argument))};
}

template <size_t SizeArgument>
Layouts listed_with_strides(const Call& call) {
  return {SymbolicLayout{call.list(SizeArgument), call.list(SizeArgument + 1), 0}};
}

Layouts embedding_backward(const Call& call) {
  return {SymbolicLayout::contiguous({call.integer(2), call.sizes(0).back()})};
}

Layouts embedding(const Call& call) {
  Sizes sizes = call.sizes(1);
  sizes.push_back(call.sizes(0)[1]);
  return {SymbolicLayout::contiguous(std::move(sizes))};
}

/// As many rows as an argument says, each as long as those of the gradient.
template <size_t Argument>
Layouts embedding_bag_backward(const Call& call) {
  return {SymbolicLayout::contiguous({call.integer(Argument), call.sizes(0).back()})};
}

Layouts stack(const Call& call) {
  const std::vector<at::Tensor> tensors = call.arguments[0].toTensorVector();
  Sizes sizes = tensors[0].sym_sizes().vec();
  const size_t dim = wrap_dim(call.number(1), sizes.size() + 1);
  sizes.insert(sizes.begin() + static_cast<std::ptrdiff_t>(dim),
               static_cast<int64_t>(tensors.size()));
  return {SymbolicLayout::contiguous(std::move(sizes))};
}

/// Windows of argument 1's size become columns.
Layouts im2col(const Call& call) {
  Sizes sizes = call.sizes(0);
  const size_t first = sizes.size() - 2;
  SymInt places = 1, window = 1;
  for (size_t i = 0; i < 2; ++i) {
    const int64_t kernel = call.numbers(1)[i], dilation = call.numbers(2)[i];
    const int64_t pad = call.numbers(3)[i], stride = call.numbers(4)[i];
    places = places * ((sizes[first + i] + 2 * pad - dilation * (kernel - 1) - 1) / stride + 1);
    window = window * kernel;
  }
  sizes.resize(first);
  sizes.back() = sizes.back() * window;
  sizes.push_back(places);
  return {SymbolicLayout::contiguous(std::move(sizes))};
}

/// Columns become an image of argument 1's size again.
Layouts col2im(const Call& call) {
  Sizes sizes = call.sizes(0);
  sizes.pop_back();
  for (int64_t kernel : call.numbers(2)) sizes.back() = sizes.back() / kernel;
  for (const SymInt& size : call.list(1)) sizes.push_back(size);
  return {SymbolicLayout::contiguous(std::move(sizes))};
}

/// `rise`: 1 if blocks of channels become places, -1 if places do.
template <int rise>
Layouts pixel_shuffle(const Call& call) {
  Sizes sizes = call.sizes(0);
  const int64_t factor = call.number(1);
  SymInt *height = &sizes[sizes.size() - 2], *width = &sizes.back(), *channels = height - 1;
  *channels = rise > 0 ? *channels / (factor * factor) : *channels * (factor * factor);
  *height = rise > 0 ? *height * factor : *height / factor;
  *width = rise > 0 ? *width * factor : *width / factor;
  return {SymbolicLayout::contiguous(std::move(sizes))};
}

Layouts repeat(const Call& call) {
  Sizes sizes = call.list(1);
  const Sizes source = call.sizes(0);
  const size_t added = sizes.size() - source.size();
  for (size_t i = 0; i < source.size(); ++i) sizes[i + added] = sizes[i + added] * source[i];
  return {SymbolicLayout::contiguous(std::move(sizes))};
}

Layouts index_select(const Call& call) {
  Sizes sizes = call.sizes(0);
  if (!sizes.empty()) sizes[wrap_dim(call.number(1), sizes.size())] = call.tensor(2).sym_numel();
  return {SymbolicLayout::contiguous(std::move(sizes))};
}

constexpr SymbolicRow row_table[] = {
    // Reductions.
    {"sum", full_reduction},
    {"mean", full_reduction},
    {"sum.dim_IntList", reduction<1>},
    {"mean.dim", reduction<1>},
    {"amax", reduction<1>},
    {"amin", reduction<1>},
    {"logsumexp", reduction<1>},
    {"any.dim", reduction<1>},
    {"linalg_vector_norm", reduction<2>},
    {"all.dim", reduction<1>},
    {"prod.dim_int", reduction<1>},
    {"nansum", reduction<1>},
    {"max.dim", reduction<1>},
    {"min.dim", reduction<1>},
    {"argmax", reduction<1>},
    {"argmin", reduction<1>},
    // Products of matrices.
    {"mm", mm},
    {"bmm", bmm},
    {"addmm", addmm},
    {"baddbmm", baddbmm},
    {"mv", mv},
    {"dot", full_reduction},
    {"addmv", addmv},
    {"addr", addr},
    // Layers.
    {"_embedding_bag_backward", embedding_bag_backward<6>},
    {"_embedding_bag_dense_backward", embedding_bag_backward<5>},
    {"embedding", embedding},
    {"embedding_dense_backward", embedding_backward},
    {"im2col", im2col},
    {"col2im", col2im},
    {"pixel_shuffle", pixel_shuffle<1>},
    {"pixel_unshuffle", pixel_shuffle<-1>},
    // Elements moved.
    {"repeat", repeat},
    {"unfold_backward", listed<1>},
    {"stack", stack},
    {"index_select", index_select},
    {"select_backward", listed<1>},
    {"slice_backward", listed<1>},
    {"diagonal_backward", listed<1>},
    // New tensors.
    {"zeros", listed<0>},
    {"ones", listed<0>},
    {"full", listed<0>},
    {"empty.memory_format", listed<0>},
    {"empty_strided", listed_with_strides<0>},
    {"new_zeros", listed<1>},
    {"new_ones", listed<1>},
    {"new_full", listed<1>},
    {"new_empty", listed<1>},
    {"new_empty_strided", listed_with_strides<1>},
};

}  // namespace

c10::ArrayRef<SymbolicRow> symbolic_rows() {
  return row_table;
}

}  // namespace ahead::tracing
