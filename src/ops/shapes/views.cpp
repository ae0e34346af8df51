#include <ATen/TensorUtils.h>

#include <algorithm>

#include "ir/tensor_meta.h"
#include "ops/shapes/families.h"
#include "ops/shapes/layouts.h"

/// Rules of operators whose results are views of their first argument.
namespace ahead::ops::shapes {
namespace {

using Call = LayoutCall;

/// Replaces a size of -1 by what makes the number of elements right.
Dims complete(Dims sizes, Dim elements) {
  const auto missing =
      std::find_if(sizes.begin(), sizes.end(), [](Dim size) { return size == -1; });
  if (missing == sizes.end()) return sizes;
  *missing = 1;
  *missing = elements / product_of(sizes);
  return sizes;
}

Layouts view_layout(const Call& call) {
  const Layout source = call.layout(0);
  Layout result{complete(call.list(1), product_of(source.sizes)), {}, source.offset};
  const bool is_row_by_row = source.strides == contiguous_strides(source.sizes) &&
                             product_of(result.sizes) == product_of(source.sizes);
  if (is_row_by_row) {
    result.strides = contiguous_strides(result.sizes);
    return {result};
  }
  const auto strides = at::detail::computeStride(to_sym_ints(source.sizes, call.guards),
                                                 to_sym_ints(source.strides, call.guards),
                                                 to_sym_ints(result.sizes, call.guards));
  if (!strides) call.refuse("there is no such view");
  result.strides = to_dims(*strides);
  return {result};
}

Layouts expand_layout(const Call& call) {
  const Layout source = call.layout(0);
  Layout result{call.list(1), {}, source.offset};
  const size_t added = result.sizes.size() - source.sizes.size();
  for (size_t i = 0; i < result.sizes.size(); ++i) {
    const bool is_new = i < added;
    Dim& size = result.sizes[i];
    if (!is_new && size == -1) size = source.sizes[i - added];
    const bool keeps = !is_new && call.equal(size, source.sizes[i - added]);
    result.strides.push_back(keeps ? source.strides[i - added] : Dim(0));
  }
  return {result};
}

Layout permuted(const Layout& source, const std::vector<size_t>& order) {
  Layout result{{}, {}, source.offset};
  for (size_t dim : order) {
    result.sizes.push_back(source.sizes[dim]);
    result.strides.push_back(source.strides[dim]);
  }
  return result;
}

Layouts permute_layout(const Call& call) {
  const Layout source = call.layout(0);
  std::vector<size_t> order;
  for (int64_t dim : call.numbers(1)) order.push_back(from_front(dim, source.sizes.size()));
  return {permuted(source, order)};
}

Layout transposed(Layout layout, size_t a, size_t b) {
  std::swap(layout.sizes[a], layout.sizes[b]);
  std::swap(layout.strides[a], layout.strides[b]);
  return layout;
}

Layouts transpose_layout(const Call& call) {
  const Layout source = call.layout(0);
  const size_t dims = source.sizes.size();
  return {transposed(source, from_front(call.number(1), dims), from_front(call.number(2), dims))};
}

Layouts t_layout(const Call& call) {
  const Layout source = call.layout(0);
  return {source.sizes.size() < 2 ? source : transposed(source, 0, 1)};
}

Layouts unsqueeze_layout(const Call& call) {
  Layout layout = call.layout(0);
  const size_t dim = from_front(call.number(1), layout.sizes.size() + 1);
  const bool is_last = dim == layout.sizes.size();
  const Dim stride = is_last ? Dim(1) : layout.sizes[dim] * layout.strides[dim];
  layout.sizes.insert(layout.sizes.begin() + static_cast<std::ptrdiff_t>(dim), 1);
  layout.strides.insert(layout.strides.begin() + static_cast<std::ptrdiff_t>(dim), stride);
  return {layout};
}

Layouts squeeze_those(const Call& call, const std::vector<bool>& asked) {
  const Layout source = call.layout(0);
  Layout result{{}, {}, source.offset};
  for (size_t i = 0; i < source.sizes.size(); ++i) {
    if (asked[i] && call.equal(source.sizes[i], 1)) continue;
    result.sizes.push_back(source.sizes[i]);
    result.strides.push_back(source.strides[i]);
  }
  return {result};
}

Layouts squeeze_layout(const Call& call) {
  return squeeze_those(call, std::vector<bool>(call.sizes(0).size(), true));
}

Layouts squeeze_dims_layout(const Call& call) {
  std::vector<bool> asked(call.sizes(0).size());
  for (int64_t dim : call.numbers(1))
    if (!asked.empty()) asked[from_front(dim, asked.size())] = true;
  return squeeze_those(call, asked);
}

Layouts select_layout(const Call& call) {
  Layout layout = call.layout(0);
  const size_t dim = from_front(call.number(1), layout.sizes.size());
  Dim index = call.integer(2);
  if (call.less(index, 0)) index = index + layout.sizes[dim];
  layout.offset = layout.offset + index * layout.strides[dim];
  layout.sizes.erase(layout.sizes.begin() + static_cast<std::ptrdiff_t>(dim));
  layout.strides.erase(layout.strides.begin() + static_cast<std::ptrdiff_t>(dim));
  return {layout};
}

/// A bound of a slice as an index from the front, within the dimension.
Dim clamp_bound(const Call& call, Dim bound, Dim size) {
  if (call.less(bound, 0)) bound = bound + size;
  if (call.less(bound, 0)) return 0;
  return call.less(size, bound) ? size : bound;
}

Layouts slice_layout(const Call& call) {
  Layout layout = call.layout(0);
  const size_t dim = from_front(call.number(1), layout.sizes.size());
  const Dim size = layout.sizes[dim];
  const Dim start = call.is_none(2) ? Dim(0) : clamp_bound(call, call.integer(2), size);
  Dim end = call.is_none(3) ? size : clamp_bound(call, call.integer(3), size);
  if (call.less(end, start)) end = start;
  const Dim step = call.integer(4);
  layout.offset = layout.offset + start * layout.strides[dim];
  layout.sizes[dim] = (end - start + step - 1) / step;
  layout.strides[dim] = layout.strides[dim] * step;
  return {layout};
}

Layouts same_layout(const Call& call) {
  return {call.layout(0)};
}

Layouts as_strided_layout(const Call& call) {
  const Dim offset = call.is_none(3) ? call.layout(0).offset : call.integer(3);
  return {Layout{call.list(1), call.list(2), offset}};
}

Layouts reshape_alias_layout(const Call& call) {
  return {Layout{call.list(1), call.list(2), call.layout(0).offset}};
}

Layouts diagonal_layout(const Call& call) {
  const Layout source = call.layout(0);
  const size_t dims = source.sizes.size();
  const size_t a = from_front(call.number(2), dims), b = from_front(call.number(3), dims);
  const int64_t shift = call.number(1);
  const Dim rows = source.sizes[a] + std::min<int64_t>(shift, 0);
  const Dim columns = source.sizes[b] - std::max<int64_t>(shift, 0);
  const Dim length = call.less(rows, columns) ? rows : columns;
  Layout result{{}, {}, source.offset};
  for (size_t i = 0; i < dims; ++i) {
    if (i == a || i == b) continue;
    result.sizes.push_back(source.sizes[i]);
    result.strides.push_back(source.strides[i]);
  }
  const bool is_empty = !call.less(0, length);
  if (!is_empty)
    result.offset = result.offset + source.strides[b] * std::max<int64_t>(shift, 0) -
                    source.strides[a] * std::min<int64_t>(shift, 0);
  result.sizes.push_back(is_empty ? Dim(0) : length);
  result.strides.push_back(source.strides[a] + source.strides[b]);
  return {result};
}

Layouts unfold_layout(const Call& call) {
  Layout layout = call.layout(0);
  if (layout.sizes.empty()) call.refuse("it is of a number");
  const size_t dim = from_front(call.number(1), layout.sizes.size());
  const Dim stride = layout.strides[dim];
  layout.sizes[dim] = (layout.sizes[dim] - call.number(2)) / call.number(3) + 1;
  layout.strides[dim] = stride * call.number(3);
  layout.sizes.push_back(call.number(2));
  layout.strides.push_back(stride);
  return {layout};
}

/// One result for each index of a dimension, of which there are always as many.
Layouts unbind_layout(const Call& call) {
  Layout layout = call.layout(0);
  const auto dim = static_cast<std::ptrdiff_t>(from_front(call.number(1), layout.sizes.size()));
  const int64_t count =
      call.pin(layout.sizes[static_cast<size_t>(dim)], "it makes one tensor for each index");
  const Dim stride = layout.strides[static_cast<size_t>(dim)];
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
Layouts parts(Layout layout, size_t dim, const Dims& lengths) {
  Layouts layouts;
  for (Dim length : lengths) {
    layout.sizes[dim] = length;
    layouts.push_back(layout);
    layout.offset = layout.offset + length * layout.strides[dim];
  }
  return layouts;
}

/// As many parts as for the sizes at hand, all but the last of one length.
Layouts split_layout(const Call& call) {
  const Layout source = call.layout(0);
  const size_t dim = from_front(call.number(2), source.sizes.size());
  const auto count = static_cast<int64_t>(call.results.size());
  const Dim length = call.integer(1);
  const Dim last = source.sizes[dim] - length * (count - 1);
  if (!call.less(0, last) || call.less(length, last))
    call.refuse("the number of parts is not as expected");
  Dims lengths(call.results.size(), length);
  lengths.back() = last;
  return parts(source, dim, lengths);
}

Layouts split_with_sizes_layout(const Call& call) {
  const Layout source = call.layout(0);
  return parts(source, from_front(call.number(2), source.sizes.size()), call.list(1));
}

Layouts view_as_real_layout(const Call& call) {
  Layout layout = call.layout(0);
  for (Dim& stride : layout.strides) stride = stride * 2;
  layout.offset = layout.offset * 2;
  layout.sizes.push_back(2);
  layout.strides.push_back(1);
  return {layout};
}

}  // namespace

void add_view_rules(ShapeRules& rules) {
  rules.add_layout("view", view_layout);
  rules.add_layout("_unsafe_view", view_layout);
  rules.add_layout("_reshape_alias", reshape_alias_layout);
  rules.add_layout("expand", expand_layout);
  rules.add_layout("permute", permute_layout);
  rules.add_layout("transpose.int", transpose_layout);
  rules.add_layout("t", t_layout);
  rules.add_layout("unsqueeze", unsqueeze_layout);
  rules.add_layout("squeeze", squeeze_layout);
  rules.add_layout("squeeze.dim", squeeze_dims_layout);
  rules.add_layout("squeeze.dims", squeeze_dims_layout);
  rules.add_layout("select.int", select_layout);
  rules.add_layout("slice.Tensor", slice_layout);
  rules.add_layout("alias", same_layout);
  rules.add_layout("detach", same_layout);
  rules.add_layout("as_strided", as_strided_layout);
  rules.add_layout("diagonal", diagonal_layout);
  rules.add_layout("unfold", unfold_layout);
  rules.add_layout("unbind.int", unbind_layout);
  rules.add_layout("split.Tensor", split_layout);
  rules.add_layout("split_with_sizes", split_with_sizes_layout);
  rules.add_layout("view_as_real", view_as_real_layout);
}

}  // namespace ahead::ops::shapes
