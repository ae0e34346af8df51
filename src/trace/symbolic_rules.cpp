#include "trace/symbolic_rules.h"

#include <ATen/TensorUtils.h>
#include <ATen/WrapDimUtils.h>

#include <algorithm>
#include <unordered_map>

#include "ahead/errors.h"
#include "ops/facts.h"

namespace ahead::tracing {
namespace {

using c10::SymInt;
using Sizes = std::vector<SymInt>;
using Layouts = std::vector<SymbolicLayout>;

[[noreturn]] void refuse(const Operator& op, const char* why) {
  throw Unsupported("trace", op.name() + ": " + why + ", so that sizes cannot change.");
}

/// One call of an operator.
struct Call {
  const Operator& op;
  const std::vector<c10::IValue>& arguments;
  const std::vector<at::Tensor>& results;  ///< for the sizes for which is traced

  bool has_tensor(size_t index) const {
    return arguments[index].isTensor() && arguments[index].toTensor().defined();
  }
  const at::Tensor& tensor(size_t index) const { return arguments[index].toTensor(); }
  Sizes sizes(size_t index) const { return tensor(index).sym_sizes().vec(); }
  SymbolicLayout layout(size_t index) const { return SymbolicLayout::of(tensor(index)); }
  SymInt integer(size_t index) const { return arguments[index].toSymInt(); }
  int64_t number(size_t index) const { return arguments[index].toInt(); }
  bool flag(size_t index) const { return arguments[index].toBool(); }
  Sizes list(size_t index) const { return arguments[index].toSymIntVector(); }
  std::vector<int64_t> numbers(size_t index) const { return arguments[index].toIntVector(); }
};

size_t wrap(int64_t dim, size_t dims) {
  return static_cast<size_t>(c10::maybe_wrap_dim(dim, static_cast<int64_t>(dims)));
}

SymInt product(const Sizes& sizes) {
  SymInt product = 1;
  for (const SymInt& size : sizes) product = product * size;
  return product;
}

/// Replaces a size of -1 by what makes the number of elements right.
Sizes complete(Sizes sizes, const SymInt& elements) {
  const auto missing = std::find_if(sizes.begin(), sizes.end(),
                                    [](const SymInt& size) { return size.maybe_as_int() == -1; });
  if (missing == sizes.end()) return sizes;
  *missing = 1;
  *missing = elements / product(sizes);
  return sizes;
}

Layouts view(const Call& call) {
  const SymbolicLayout source = call.layout(0);
  SymbolicLayout result{complete(call.list(1), product(source.sizes)), {}, source.offset};
  const auto strides = at::detail::computeStride(source.sizes, source.strides, result.sizes);
  if (!strides) refuse(call.op, "there is no such view");
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
  for (int64_t dim : call.numbers(1)) order.push_back(wrap(dim, source.sizes.size()));
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
  return {transposed(source, wrap(call.number(1), dims), wrap(call.number(2), dims))};
}

Layouts t(const Call& call) {
  const SymbolicLayout source = call.layout(0);
  return {source.sizes.size() < 2 ? source : transposed(source, 0, 1)};
}

Layouts unsqueeze(const Call& call) {
  SymbolicLayout layout = call.layout(0);
  const size_t dim = wrap(call.number(1), layout.sizes.size() + 1);
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
    if (!asked.empty()) asked[wrap(dim, asked.size())] = true;
  return squeeze_those(call, asked);
}

Layouts select(const Call& call) {
  SymbolicLayout layout = call.layout(0);
  const size_t dim = wrap(call.number(1), layout.sizes.size());
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
  const size_t dim = wrap(call.number(1), layout.sizes.size());
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

Sizes broadcast(const Sizes& a, const Sizes& b) {
  Sizes result = a.size() < b.size() ? b : a;
  const Sizes& other = a.size() < b.size() ? a : b;
  const size_t added = result.size() - other.size();
  for (size_t i = 0; i < other.size(); ++i) {
    SymInt& size = result[i + added];
    if (size == 1) {
      size = other[i];
    } else if (other[i] != 1) {
      TORCH_CHECK(size == other[i], "sizes do not match");
    }
  }
  return result;
}

/// Notes that an operand's dimensions lie in this order. True if it has all of them, so that no
/// other order would do.
bool note_order(const at::Tensor& operand, const std::vector<size_t>& order, const Operator& op) {
  const Sizes strides = operand.sym_strides().vec();
  const size_t added = order.size() - strides.size();
  const SymInt* outer = nullptr;
  bool is_decisive = added == 0;
  for (size_t dim : order) {
    if (dim < added) continue;
    const SymInt& stride = strides[dim - added];
    const bool is_one = operand.sym_size(static_cast<int64_t>(dim - added)) == 1;
    if (is_one || stride.maybe_as_int() == 0) {
      is_decisive = false;
      continue;
    }
    if (outer != nullptr && *outer < stride) refuse(op, "its operands lie in different orders");
    if (outer != nullptr && *outer == stride) is_decisive = false;
    outer = &stride;
  }
  return is_decisive;
}

Layouts pointwise(const Call& call) {
  Sizes sizes;
  for (size_t i = 0; i < call.arguments.size(); ++i)
    if (call.has_tensor(i)) sizes = broadcast(sizes, call.sizes(i));
  const std::vector<size_t> order = dimensions_in_memory(call.results[0]);
  // Kernels lay the result out as their first operand lies, as far as that decides; then the next.
  for (size_t i = 0; i < call.arguments.size(); ++i)
    if (call.has_tensor(i) && note_order(call.tensor(i), order, call.op)) break;
  return {SymbolicLayout::ordered_like(std::move(sizes), call.results[0])};
}

/// Along the dimensions in argument 1, which keep the length one if argument 2 says so.
Layouts reduction(const Call& call) {
  Sizes sizes = call.sizes(0);
  std::vector<bool> reduced(sizes.size(), call.arguments[1].isNone());
  if (!call.arguments[1].isNone()) {
    const bool is_one = call.arguments[1].isInt();
    const auto dims = is_one ? std::vector<int64_t>{call.number(1)} : call.numbers(1);
    if (dims.empty()) reduced.assign(sizes.size(), true);
    for (int64_t dim : dims)
      if (!sizes.empty()) reduced[wrap(dim, sizes.size())] = true;
  }
  Sizes kept;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (reduced[i] && !call.flag(2)) continue;
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

/// Each result has the sizes of an argument, in the order in which the kernel lays it out.
template <size_t... Arguments>
Layouts like(const Call& call) {
  Layouts layouts;
  size_t result = 0;
  const auto add = [&](size_t argument) {
    const at::Tensor& hint = call.results[result++];
    layouts.push_back(hint.defined() ? SymbolicLayout::ordered_like(call.sizes(argument), hint)
                                     : SymbolicLayout{});
  };
  (add(Arguments), ...);
  return layouts;
}

/// The first result is like an argument; the others hold one number for each channel, of which
/// there are always as many.
template <size_t Argument>
Layouts like_and_channels(const Call& call) {
  Layouts layouts;
  for (size_t i = 0; i < call.results.size(); ++i) {
    const at::Tensor& hint = call.results[i];
    if (!hint.defined()) {
      layouts.emplace_back();
    } else if (i == 0) {
      layouts.push_back(SymbolicLayout::ordered_like(call.sizes(Argument), hint));
    } else {
      const SymInt channels = call.sizes(Argument)[1];
      if (!channels.maybe_as_int()) refuse(call.op, "the number of channels changes");
      layouts.push_back(SymbolicLayout::of(hint));
    }
  }
  return layouts;
}

/// Results with the sizes that an argument lists, row by row.
template <size_t Argument>
Layouts listed(const Call& call) {
  return {SymbolicLayout::contiguous(call.list(Argument))};
}

/// The sizes that argument 1 lists, as a kernel for images lays them out.
template <size_t Argument>
Layouts listed_in_order(const Call& call) {
  return {SymbolicLayout::ordered_like(call.list(Argument), call.results[0])};
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

Layouts convolution_backward(const Call& call) {
  Layouts layouts;
  for (size_t i = 0; i < call.results.size(); ++i) {
    const at::Tensor& hint = call.results[i];
    if (!hint.defined()) {
      layouts.emplace_back();
    } else if (i < 2) {
      layouts.push_back(SymbolicLayout::ordered_like(call.sizes(1 + i), hint));
    } else {
      layouts.push_back(SymbolicLayout::contiguous(call.list(3)));
    }
  }
  return layouts;
}

Layouts cat(const Call& call) {
  Sizes sizes;
  size_t dim = 0;
  for (const at::Tensor& tensor : call.arguments[0].toTensorVector()) {
    const Sizes own = tensor.sym_sizes().vec();
    if (own.size() == 1 && own[0].maybe_as_int() == 0) continue;
    if (sizes.empty()) {
      sizes = own;
      dim = wrap(call.number(1), own.size());
    } else {
      sizes[dim] = sizes[dim] + own[dim];
    }
  }
  return {SymbolicLayout::ordered_like(std::move(sizes), call.results[0])};
}

Layouts pad(const Call& call) {
  Sizes sizes = call.sizes(0);
  const Sizes pads = call.list(1);
  for (size_t i = 0; i < pads.size() / 2; ++i) {
    SymInt& size = sizes[sizes.size() - 1 - i];
    size = size + pads[2 * i] + pads[2 * i + 1];
  }
  return {SymbolicLayout::ordered_like(std::move(sizes), call.results[0])};
}

Layouts index_select(const Call& call) {
  Sizes sizes = call.sizes(0);
  if (!sizes.empty()) sizes[wrap(call.number(1), sizes.size())] = call.tensor(2).sym_numel();
  return {SymbolicLayout::contiguous(std::move(sizes))};
}

using Rule = Layouts (*)(const Call&);

struct Row {
  const char* name;
  Rule rule;
};

constexpr Row table[] = {
    // Views.
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
    // Reductions.
    {"sum", full_reduction},
    {"mean", full_reduction},
    {"sum.dim_IntList", reduction},
    {"mean.dim", reduction},
    {"amax", reduction},
    {"amin", reduction},
    {"logsumexp", reduction},
    {"any.dim", reduction},
    {"all.dim", reduction},
    // Products of matrices.
    {"mm", mm},
    {"bmm", bmm},
    {"addmm", addmm},
    {"baddbmm", baddbmm},
    {"mv", mv},
    {"dot", full_reduction},
    // Layers.
    {"native_layer_norm_backward", like<1, 5, 6>},
    {"native_batch_norm_backward", like_and_channels<1>},
    {"native_group_norm_backward", like_and_channels<1>},
    {"_softmax_backward_data", like<0>},
    {"_log_softmax_backward_data", like<0>},
    {"_softmax", like<0>},
    {"_log_softmax", like<0>},
    {"native_dropout_backward", like<0>},
    {"nll_loss_backward", like<1>},
    {"nll_loss2d_backward", like<1>},
    {"embedding", embedding},
    {"embedding_dense_backward", embedding_backward},
    {"convolution_backward", convolution_backward},
    {"max_pool2d_with_indices_backward", like<1>},
    {"max_pool3d_with_indices_backward", like<1>},
    {"avg_pool2d_backward", like<1>},
    {"avg_pool3d_backward", like<1>},
    {"_adaptive_avg_pool2d_backward", like<1>},
    {"_adaptive_avg_pool3d_backward", like<1>},
    {"adaptive_max_pool2d_backward", like<1>},
    {"upsample_nearest2d_backward", listed_in_order<2>},
    {"upsample_bilinear2d_backward", listed_in_order<2>},
    {"_scaled_dot_product_flash_attention_for_cpu_backward", like<1, 2, 3>},
    {"_scaled_dot_product_flash_attention_backward", like<1, 2, 3>},
    {"_scaled_dot_product_efficient_attention_backward", like<1, 2, 3, 4>},
    // Elements moved.
    {"clone", like<0>},
    {"_to_copy", like<0>},
    {"copy", same},
    {"flip", like<0>},
    {"tril", like<0>},
    {"triu", like<0>},
    {"cumsum", like<0>},
    {"gather", like<2>},
    {"scatter.src", like<0>},
    {"scatter.value", like<0>},
    {"scatter_add", like<0>},
    {"index_add", like<0>},
    {"index_put", like<0>},
    {"_unsafe_index_put", like<0>},
    {"_index_put_impl", like<0>},
    {"index_select", index_select},
    {"select_backward", listed<1>},
    {"slice_backward", listed<1>},
    {"diagonal_backward", listed<1>},
    {"select_scatter", like<0>},
    {"slice_scatter", like<0>},
    {"as_strided_scatter", like<0>},
    {"cat", cat},
    {"constant_pad_nd", pad},
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
    {"zeros_like", like<0>},
    {"ones_like", like<0>},
    {"full_like", like<0>},
    {"empty_like", like<0>},
    {"fill.Scalar", like<0>},
};

Rule find_rule(const TracedOp& op) {
  static const auto* rules = [] {
    auto* map = new std::unordered_map<const Operator*, Rule>;
    for (const Row& row : table)
      map->emplace(Operator::find(std::string("aten.") + row.name), row.rule);
    return map;
  }();
  const auto found = rules->find(op.op);
  if (found != rules->end()) return found->second;
  return op.pointwise ? pointwise : nullptr;
}

}  // namespace

std::vector<SymbolicLayout> symbolic_results(const TracedOp& op,
                                             const std::vector<c10::IValue>& arguments,
                                             const std::vector<at::Tensor>& results) {
  const Rule rule = find_rule(op);
  if (rule == nullptr) refuse(*op.op, "it is not known how its results follow from sizes");
  const std::vector<SymbolicLayout> layouts = rule({*op.op, arguments, results});
  TORCH_INTERNAL_ASSERT(layouts.size() == results.size(), op.op->name());
  for (size_t i = 0; i < results.size(); ++i) {
    if (results[i].defined() && !layouts[i].describes(results[i]))
      refuse(*op.op, "its results do not follow from sizes as expected");
  }
  return layouts;
}

}  // namespace ahead::tracing
