#include "trace/sizes/symbolic_views.h"

#include <ATen/TensorUtils.h>

#include <algorithm>

namespace ahead::tracing {
namespace {

using c10::SymInt;
using Call = SymbolicCall;
using Sizes = SymbolicCall::Sizes;
using Layouts = std::vector<SymbolicLayout>;

/// Replaces a size of -1 by what makes the number of elements right.
Sizes complete(Sizes sizes, const SymInt& elements) {
  const auto missing = std::find_if(sizes.begin(), sizes.end(),
                                    [](const SymInt& size) { return size.maybe_as_int() == -1; });
  if (missing == sizes.end()) return sizes;
  *missing = 1;
  *missing = elements / product_of(sizes);
  return sizes;
}

Layouts view(const Call& call) {
  const SymbolicLayout source = call.layout(0);
  SymbolicLayout result{complete(call.list(1), product_of(source.sizes)), {}, source.offset};
  const auto strides = at::detail::computeStride(source.sizes, source.strides, result.sizes);
  if (!strides) call.refuse("there is no such view");
  result.strides.assign(strides->begin(), strides->end());
  return {result};
}

Layouts expand(const Call& call) {
  const SymbolicLayout source = call.layout(0);
  SymbolicLayout result{call.list(1), {}, source.offset};
  const size_t added = result.sizes.size() - source.sizes.size();
  for (size_t i = 0; i < result.sizes.size(); ++i) {
    const bool is_new = i < added;
    SymInt& size = result.sizes[i];
    if (!is_new && size.maybe_as_int() == -1) size = source.sizes[i - added];
    const bool keeps = !is_new && size == source.sizes[i - added];
    result.strides.push_back(keeps ? source.strides[i - added] : SymInt(0));
  }
  return {result};
}

SymbolicLayout permuted(const SymbolicLayout& source, const std::vector<size_t>& order) {
  SymbolicLayout result{{}, {}, source.offset};
  for (size_t dim : order) {
    result.sizes.push_back(source.sizes[dim]);
    result.strides.push_back(source.strides[dim]);
  }
  return result;
}

Layouts permute(const Call& call) {
  const SymbolicLayout source = call.layout(0);
  std::vector<size_t> order;
  for (int64_t dim : call.numbers(1)) order.push_back(wrap_dim(dim, source.sizes.size()));
  return {permuted(source, order)};
}

SymbolicLayout transposed(SymbolicLayout layout, size_t a, size_t b) {
  std::swap(layout.sizes[a], layout.sizes[b]);
  std::swap(layout.strides[a], layout.strides[b]);
  return layout;
}

Layouts transpose(const Call& call) {
  const SymbolicLayout source = call.layout(0);
  const size_t dims = source.sizes.size();
  return {transposed(source, wrap_dim(call.number(1), dims), wrap_dim(call.number(2), dims))};
}

Layouts t(const Call& call) {
  const SymbolicLayout source = call.layout(0);
  return {source.sizes.size() < 2 ? source : transposed(source, 0, 1)};
}

Layouts unsqueeze(const Call& call) {
  SymbolicLayout layout = call.layout(0);
  const size_t dim = wrap_dim(call.number(1), layout.sizes.size() + 1);
  const bool is_last = dim == layout.sizes.size();
  const SymInt stride = is_last ? SymInt(1) : layout.sizes[dim] * layout.strides[dim];
  layout.sizes.insert(layout.sizes.begin() + static_cast<std::ptrdiff_t>(dim), 1);
  layout.strides.insert(layout.strides.begin() + static_cast<std::ptrdiff_t>(dim), stride);
  return {layout};
}

Layouts squeeze_those(const Call& call, const std::vector<bool>& asked) {
  const SymbolicLayout source = call.layout(0);
  SymbolicLayout result{{}, {}, source.offset};
  for (size_t i = 0; i < source.sizes.size(); ++i) {
    if (asked[i] && source.sizes[i] == 1) continue;
    result.sizes.push_back(source.sizes[i]);
    result.strides.push_back(source.strides[i]);
  }
  return {result};
}

Layouts squeeze(const Call& call) {
  return squeeze_those(call, std::vector<bool>(call.sizes(0).size(), true));
}

Layouts squeeze_dims(const Call& call) {
  std::vector<bool> asked(call.sizes(0).size());
  const bool is_one = call.arguments[1].isInt();
  for (int64_t dim : is_one ? std::vector<int64_t>{call.number(1)} : call.numbers(1))
    if (!asked.empty()) asked[wrap_dim(dim, asked.size())] = true;
  return squeeze_those(call, asked);
}

Layouts select(const Call& call) {
  SymbolicLayout layout = call.layout(0);
  const size_t dim = wrap_dim(call.number(1), layout.sizes.size());
  SymInt index = call.integer(2);
  if (index < 0) index = index + layout.sizes[dim];
  layout.offset = layout.offset + index * layout.strides[dim];
  layout.sizes.erase(layout.sizes.begin() + static_cast<std::ptrdiff_t>(dim));
  layout.strides.erase(layout.strides.begin() + static_cast<std::ptrdiff_t>(dim));
  return {layout};
}

/// A bound of a slice as an index from the front, within the dimension.
SymInt clamp_bound(SymInt bound, const SymInt& size) {
  if (bound < 0) bound = bound + size;
  if (bound < 0) return 0;
  return bound > size ? size : bound;
}

Layouts slice(const Call& call) {
  SymbolicLayout layout = call.layout(0);
  const size_t dim = wrap_dim(call.number(1), layout.sizes.size());
  const SymInt size = layout.sizes[dim];
  const SymInt start = call.arguments[2].isNone() ? SymInt(0) : clamp_bound(call.integer(2), size);
  SymInt end = call.arguments[3].isNone() ? size : clamp_bound(call.integer(3), size);
  if (end < start) end = start;
  const SymInt step = call.integer(4);
  layout.offset = layout.offset + start * layout.strides[dim];
  layout.sizes[dim] = (end - start + step - 1) / step;
  layout.strides[dim] = layout.strides[dim] * step;
  return {layout};
}

Layouts same(const Call& call) {
  return {call.layout(0)};
}

Layouts as_strided(const Call& call) {
  const SymInt offset =
      call.arguments[3].isNone() ? call.layout(0).offset : call.arguments[3].toSymInt();
  return {SymbolicLayout{call.list(1), call.list(2), offset}};
}

Layouts reshape_alias(const Call& call) {
  return {SymbolicLayout{call.list(1), call.list(2), call.layout(0).offset}};
}

Layouts diagonal(const Call& call) {
  const SymbolicLayout source = call.layout(0);
  const size_t dims = source.sizes.size();
  const size_t a = wrap_dim(call.number(2), dims), b = wrap_dim(call.number(3), dims);
  const int64_t shift = call.number(1);
  const SymInt rows = source.sizes[a] + std::min<int64_t>(shift, 0);
  const SymInt columns = source.sizes[b] - std::max<int64_t>(shift, 0);
  const SymInt length = rows < columns ? rows : columns;
  SymbolicLayout result{{}, {}, source.offset};
  for (size_t i = 0; i < dims; ++i) {
    if (i == a || i == b) continue;
    result.sizes.push_back(source.sizes[i]);
    result.strides.push_back(source.strides[i]);
  }
  const bool is_empty = length <= 0;
  if (!is_empty)
    result.offset = result.offset + source.strides[b] * std::max<int64_t>(shift, 0) -
                    source.strides[a] * std::min<int64_t>(shift, 0);
  result.sizes.push_back(is_empty ? SymInt(0) : length);
  result.strides.push_back(source.strides[a] + source.strides[b]);
  return {result};
}

Layouts unfold(const Call& call) {
  SymbolicLayout layout = call.layout(0);
  if (layout.sizes.empty()) call.refuse("it is of a number");
  const size_t dim = wrap_dim(call.number(1), layout.sizes.size());
  const SymInt stride = layout.strides[dim];
  layout.sizes[dim] = (layout.sizes[dim] - call.number(2)) / call.number(3) + 1;
  layout.strides[dim] = stride * call.number(3);
  layout.sizes.emplace_back(call.number(2));
  layout.strides.push_back(stride);
  return {layout};
}

/// One result for each index of a dimension, of which there are always as many.
Layouts unbind(const Call& call) {
  SymbolicLayout layout = call.layout(0);
  const auto dim = static_cast<std::ptrdiff_t>(wrap_dim(call.number(1), layout.sizes.size()));
  const int64_t count = layout.sizes[static_cast<size_t>(dim)].guard_int(__FILE__, __LINE__);
  const SymInt stride = layout.strides[static_cast<size_t>(dim)];
  layout.sizes.erase(layout.sizes.begin() + dim);
  layout.strides.erase(layout.strides.begin() + dim);
  Layouts layouts;
  for (int64_t i = 0; i < count; ++i) {
    layouts.push_back(layout);
    layout.offset = layout.offset + stride;
  }
  return layouts;
}

/// Parts of these lengths, one after the other.
Layouts parts(SymbolicLayout layout, size_t dim, const Sizes& lengths) {
  Layouts layouts;
  for (const SymInt& length : lengths) {
    layout.sizes[dim] = length;
    layouts.push_back(layout);
    layout.offset = layout.offset + length * layout.strides[dim];
  }
  return layouts;
}

/// As many parts as for the sizes at hand, all but the last of one length.
Layouts split(const Call& call) {
  const SymbolicLayout source = call.layout(0);
  const size_t dim = wrap_dim(call.number(2), source.sizes.size());
  const auto count = static_cast<int64_t>(call.results.size());
  const SymInt length = call.integer(1);
  const SymInt last = source.sizes[dim] - length * (count - 1);
  if (last <= 0 || last > length) call.refuse("the number of parts is not as expected");
  Sizes lengths(call.results.size(), length);
  lengths.back() = last;
  return parts(source, dim, lengths);
}

Layouts split_with_sizes(const Call& call) {
  const SymbolicLayout source = call.layout(0);
  return parts(source, wrap_dim(call.number(2), source.sizes.size()), call.list(1));
}

Layouts view_as_real(const Call& call) {
  SymbolicLayout layout = call.layout(0);
  for (SymInt& stride : layout.strides) stride = stride * 2;
  layout.offset = layout.offset * 2;
  layout.sizes.emplace_back(2);
  layout.strides.emplace_back(1);
  return {layout};
}

constexpr SymbolicRow view_table[] = {
    {"view", view},
    {"_unsafe_view", view},
    {"_reshape_alias", reshape_alias},
    {"expand", expand},
    {"permute", permute},
    {"transpose.int", transpose},
    {"t", t},
    {"unsqueeze", unsqueeze},
    {"squeeze", squeeze},
    {"squeeze.dim", squeeze_dims},
    {"squeeze.dims", squeeze_dims},
    {"select.int", select},
    {"slice.Tensor", slice},
    {"alias", same},
    {"detach", same},
    {"as_strided", as_strided},
    {"diagonal", diagonal},
    {"unfold", unfold},
    {"unbind.int", unbind},
    {"split.Tensor", split},
    {"split_with_sizes", split_with_sizes},
    {"view_as_real", view_as_real},
};

}  // namespace

c10::ArrayRef<SymbolicRow> symbolic_views() {
  return view_table;
}

}  // namespace ahead::tracing
