#pragma once

#include <ATen/WrapDimUtils.h>

#include <vector>

#include "ops/layout_rules.h"

/// What layout rules are made of, and those that many operators share.
namespace ahead::ops::shapes {

using Layouts = std::vector<Layout>;

/// A dimension from the front.
inline size_t from_front(int64_t dim, size_t dims) {
  return static_cast<size_t>(c10::maybe_wrap_dim(dim, static_cast<int64_t>(dims)));
}

/// How many elements there are.
Dim product_of(const Dims& sizes);
/// The sizes of a pointwise result. Which of them are one is noted.
Dims broadcast(const LayoutCall& call, const Dims& a, const Dims& b);
/// These sizes without gaps, in the order in which the kernel laid the result out. It did so by how
/// its operands lie, which is noted.
Layout in_order(const LayoutCall& call, Dims sizes, size_t result = 0);

/// The rule of pointwise operators.
Layouts pointwise_layout(const LayoutCall& call);
/// The result is a number.
Layouts number_layout(const LayoutCall& call);

/// Each result has the sizes of an argument, in the order in which the kernel lays it out.
template <size_t... Arguments>
Layouts like_layout(const LayoutCall& call) {
  Layouts layouts;
  const auto add = [&](size_t argument) {
    const size_t result = layouts.size();
    const bool is_there = call.results[result].defined();
    layouts.push_back(is_there ? in_order(call, call.sizes(argument), result) : Layout{});
  };
  (add(Arguments), ...);
  return layouts;
}

/// The first result is like an argument; the others hold one number for each channel.
template <size_t Argument>
Layouts like_and_channels_layout(const LayoutCall& call) {
  Layouts layouts(call.results.size());
  for (size_t i = 0; i < layouts.size(); ++i) {
    if (!call.results[i].defined()) continue;
    const Dims sizes = call.sizes(Argument);
    layouts[i] = i == 0 ? in_order(call, sizes) : Layout::contiguous({sizes[1]});
  }
  return layouts;
}

/// The sizes that an argument lists, row by row.
template <size_t Argument>
Layouts listed_layout(const LayoutCall& call) {
  return {Layout::contiguous(call.list(Argument))};
}

/// The sizes that an argument lists, with the strides that the next one does.
template <size_t Argument>
Layouts listed_with_strides_layout(const LayoutCall& call) {
  return {Layout{call.list(Argument), call.list(Argument + 1), 0}};
}

/// The sizes that an argument lists, as a kernel for images lays them out.
template <size_t Argument>
Layouts listed_in_order_layout(const LayoutCall& call) {
  return {in_order(call, call.list(Argument))};
}

}  // namespace ahead::ops::shapes
