#include "trace/sizes/symbolic_rules.h"

#include <algorithm>
#include <unordered_map>

#include "ops/facts/facts.h"
#include "tensors/map_tensors.h"
#include "trace/sizes/symbolic_call.h"
#include "trace/sizes/symbolic_rows.h"
#include "trace/sizes/symbolic_views.h"

namespace ahead::tracing {
namespace {

using c10::SymInt;
using Call = SymbolicCall;
using Sizes = SymbolicCall::Sizes;
using Layouts = std::vector<SymbolicLayout>;

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
bool note_order(const at::Tensor& operand, const std::vector<size_t>& order, const Call& call) {
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
    if (outer != nullptr && *outer < stride) call.refuse("its operands lie in different orders");
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
    if (call.has_tensor(i) && note_order(call.tensor(i), order, call)) break;
  return {SymbolicLayout::ordered_like(std::move(sizes), call.results[0])};
}

/// Notes in which order the dimensions of an operand lie, and whether without gaps.
void note_layout(const at::Tensor& operand) {
  if (!operand.defined() || !operand.unsafeGetTensorImpl()->has_symbolic_sizes_strides()) return;
  const Sizes strides = operand.sym_strides().vec();
  const SymInt* outer = nullptr;
  for (size_t dim : dimensions_in_memory(operand)) {
    if (operand.sym_size(static_cast<int64_t>(dim)) == 1) continue;
    if (outer != nullptr) static_cast<void>(*outer < strides[dim]);
    outer = &strides[dim];
  }
  static_cast<void>(operand.is_non_overlapping_and_dense());
}

/// The layout of a result that the kernel lays out by how its operands lie.
SymbolicLayout in_order(const Call& call, Sizes sizes, size_t result = 0) {
  for (const c10::IValue& argument : call.arguments) for_each_tensor(argument, note_layout);
  return SymbolicLayout::ordered_like(std::move(sizes), call.results[result]);
}

/// Each result has the sizes of an argument, in the order in which the kernel lays it out.
template <size_t... Arguments>
Layouts like(const Call& call) {
  Layouts layouts;
  size_t result = 0;
  const auto add = [&](size_t argument) {
    const bool is_there = call.results[result].defined();
    layouts.push_back(is_there ? in_order(call, call.sizes(argument), result) : SymbolicLayout{});
    ++result;
  };
  (add(Arguments), ...);
  return layouts;
}

/// The first result is like an argument; the others hold one number for each channel.
template <size_t Argument>
Layouts like_and_channels(const Call& call) {
  Layouts layouts;
  for (size_t i = 0; i < call.results.size(); ++i) {
    if (!call.results[i].defined()) {
      layouts.emplace_back();
    } else if (i == 0) {
      layouts.push_back(in_order(call, call.sizes(Argument)));
    } else {
      layouts.push_back(SymbolicLayout::contiguous({call.sizes(Argument)[1]}));
    }
  }
  return layouts;
}

Layouts copy(const Call& call) {
  return {call.layout(0)};
}

/// The sizes that argument 1 lists, as a kernel for images lays them out.
template <size_t Argument>
Layouts listed_in_order(const Call& call) {
  return {in_order(call, call.list(Argument))};
}

Layouts convolution_backward(const Call& call) {
  Layouts layouts;
  for (size_t i = 0; i < call.results.size(); ++i) {
    if (!call.results[i].defined()) {
      layouts.emplace_back();
    } else if (i < 2) {
      layouts.push_back(in_order(call, call.sizes(1 + i), i));
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
      dim = wrap_dim(call.number(1), own.size());
    } else {
      sizes[dim] = sizes[dim] + own[dim];
    }
  }
  return {in_order(call, std::move(sizes))};
}

Layouts pad(const Call& call) {
  Sizes sizes = call.sizes(0);
  const Sizes pads = call.list(1);
  for (size_t i = 0; i < pads.size() / 2; ++i) {
    SymInt& size = sizes[sizes.size() - 1 - i];
    size = size + pads[2 * i] + pads[2 * i + 1];
  }
  return {in_order(call, std::move(sizes))};
}

Layouts rot90(const Call& call) {
  Sizes sizes = call.sizes(0);
  const std::vector<int64_t> dims = call.numbers(2);
  if (call.number(1) % 2 != 0)
    std::swap(sizes[wrap_dim(dims[0], sizes.size())], sizes[wrap_dim(dims[1], sizes.size())]);
  return {in_order(call, std::move(sizes))};
}

/// The Fourier transform of what is known to be real has about half of the numbers.
Layouts fft_of_real(const Call& call) {
  Sizes sizes = call.sizes(0);
  SymInt& size = sizes[wrap_dim(call.numbers(1).back(), sizes.size())];
  if (call.flag(3)) size = size / 2 + 1;
  return {in_order(call, std::move(sizes))};
}

Layouts fft_to_real(const Call& call) {
  Sizes sizes = call.sizes(0);
  sizes[wrap_dim(call.numbers(1).back(), sizes.size())] = call.integer(3);
  return {in_order(call, std::move(sizes))};
}

/// The sum of a product of three tensors, each of which first gets dimensions of length one.
Layouts trilinear(const Call& call) {
  Sizes sizes;
  for (size_t i = 0; i < 3; ++i) {
    Sizes own = call.sizes(i);
    std::vector<int64_t> added = call.numbers(3 + i);
    std::sort(added.begin(), added.end());
    for (int64_t dim : added) own.insert(own.begin() + dim, 1);
    sizes = broadcast(sizes, own);
  }
  std::vector<int64_t> summed = call.numbers(6);
  std::sort(summed.rbegin(), summed.rend());
  for (int64_t dim : summed) sizes.erase(sizes.begin() + dim);
  return {in_order(call, std::move(sizes))};
}

/// Elements at places that tensors of indices name; dimensions without one are taken whole.
Layouts index(const Call& call) {
  const Sizes source = call.sizes(0);
  Sizes places, before, after;
  size_t dim = 0, groups = 0;
  bool was_index = false;
  for (const c10::IValue& entry : call.arguments[1].toListRef()) {
    const bool is_index = entry.isTensor() && entry.toTensor().defined();
    if (is_index) {
      const at::Tensor& indices = entry.toTensor();
      if (indices.scalar_type() == at::kBool || indices.scalar_type() == at::kByte)
        call.refuse("how many it takes depends on values");
      places = broadcast(places, indices.sym_sizes().vec());
      if (!was_index) ++groups;
    } else {
      (groups == 0 ? before : after).push_back(source[dim]);
    }
    was_index = is_index;
    ++dim;
  }
  for (; dim < source.size(); ++dim) after.push_back(source[dim]);
  Sizes sizes = groups > 1 ? places : before;
  const Sizes& second = groups > 1 ? before : places;
  sizes.insert(sizes.end(), second.begin(), second.end());
  sizes.insert(sizes.end(), after.begin(), after.end());
  return {in_order(call, std::move(sizes))};
}

constexpr SymbolicRow rule_table[] = {
    // Products of matrices.
    {"_trilinear", trilinear},
    {"_cdist_backward", like<1>},
    {"linalg_solve_triangular", like<1>},
    {"linalg_lu_solve", like<2>},
    {"cholesky_solve", like<0>},
    // Fourier transforms.
    {"_fft_c2c", like<0>},
    {"_fft_r2c", fft_of_real},
    {"_fft_c2r", fft_to_real},
    // Layers.
    {"native_layer_norm_backward", like<1, 5, 6>},
    {"native_batch_norm_backward", like_and_channels<1>},
    {"native_group_norm_backward", like_and_channels<1>},
    {"_softmax_backward_data", like<0>},
    {"_log_softmax_backward_data", like<0>},
    {"_softmax", like<0>},
    {"_log_softmax", like<0>},
    {"_weight_norm_interface_backward", like<1, 2>},
    {"native_dropout_backward", like<0>},
    {"nll_loss_backward", like<1>},
    {"nll_loss2d_backward", like<1>},
    {"multi_margin_loss_backward", like<1>},
    {"multilabel_margin_loss_backward", like<1>},
    {"_ctc_loss_backward", like<1>},
    {"glu_backward", like<1>},
    {"grid_sampler_2d_backward", like<1, 2>},
    {"grid_sampler_3d_backward", like<1, 2>},
    {"mish_backward", pointwise},
    {"_prelu_kernel_backward", like<1, 1>},
    {"mkldnn_rnn_layer_backward", like<0, 1, 2, 3, 4, 5, 6>},
    {"convolution_backward", convolution_backward},
    {"max_pool2d_with_indices_backward", like<1>},
    {"max_pool3d_with_indices_backward", like<1>},
    {"avg_pool2d_backward", like<1>},
    {"avg_pool3d_backward", like<1>},
    {"_adaptive_avg_pool2d_backward", like<1>},
    {"_adaptive_avg_pool3d_backward", like<1>},
    {"adaptive_max_pool2d_backward", like<1>},
    {"adaptive_max_pool3d_backward", like<1>},
    {"fractional_max_pool2d_backward", like<1>},
    {"fractional_max_pool3d_backward", like<1>},
    {"reflection_pad1d_backward", like<1>},
    {"reflection_pad2d_backward", like<1>},
    {"reflection_pad3d_backward", like<1>},
    {"replication_pad1d_backward", like<1>},
    {"replication_pad2d_backward", like<1>},
    {"replication_pad3d_backward", like<1>},
    {"upsample_nearest1d_backward", listed_in_order<2>},
    {"upsample_nearest3d_backward", listed_in_order<2>},
    {"upsample_linear1d_backward", listed_in_order<2>},
    {"upsample_bicubic2d_backward", listed_in_order<2>},
    {"upsample_trilinear3d_backward", listed_in_order<2>},
    {"upsample_nearest2d_backward", listed_in_order<2>},
    {"upsample_bilinear2d_backward", listed_in_order<2>},
    {"_scaled_dot_product_flash_attention_for_cpu_backward", like<1, 2, 3>},
    {"_scaled_dot_product_flash_attention_backward", like<1, 2, 3>},
    {"_scaled_dot_product_efficient_attention_backward", like<1, 2, 3, 4>},
    // Elements moved.
    {"clone", like<0>},
    {"_to_copy", like<0>},
    {"copy", copy},
    {"flip", like<0>},
    {"tril", like<0>},
    {"triu", like<0>},
    {"cumsum", like<0>},
    {"cumprod", like<0>},
    {"logcumsumexp", like<0>},
    {"roll", like<0>},
    {"rot90", rot90},
    {"masked_fill.Tensor", pointwise},
    {"index.Tensor", index},
    {"index_copy", like<0>},
    {"index_fill.int_Scalar", like<0>},
    {"scatter.reduce", like<0>},
    {"scatter_reduce.two", like<0>},
    {"masked_scatter", like<0>},
    {"take", like<1>},
    {"put", like<0>},
    {"gather", like<2>},
    {"scatter.src", like<0>},
    {"scatter.value", like<0>},
    {"scatter_add", like<0>},
    {"index_add", like<0>},
    {"index_put", like<0>},
    {"_unsafe_index_put", like<0>},
    {"_index_put_impl", like<0>},
    {"select_scatter", like<0>},
    {"slice_scatter", like<0>},
    {"as_strided_scatter", like<0>},
    {"cat", cat},
    {"constant_pad_nd", pad},
    // New tensors.
    {"zeros_like", like<0>},
    {"ones_like", like<0>},
    {"full_like", like<0>},
    {"empty_like", like<0>},
    {"fill.Scalar", like<0>},
};

SymbolicRule find_rule(const TracedOp& op) {
  static const auto* rules = [] {
    auto* map = new std::unordered_map<const Operator*, SymbolicRule>;
    for (const auto rows :
         {symbolic_views(), symbolic_rows(), c10::ArrayRef<SymbolicRow>(rule_table)}) {
      for (const SymbolicRow& row : rows)
        map->emplace(Operator::find(std::string("aten.") + row.name), row.rule);
    }
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
  const SymbolicRule rule = find_rule(op);
  const SymbolicCall call{*op.op, arguments, results};
  if (rule == nullptr) call.refuse("it is not known how its results follow from sizes");
  const std::vector<SymbolicLayout> layouts = rule(call);
  TORCH_INTERNAL_ASSERT(layouts.size() == results.size(), op.op->name());
  for (size_t i = 0; i < results.size(); ++i) {
    if (results[i].defined() && !layouts[i].describes(results[i]))
      call.refuse("its results do not follow from sizes as expected");
  }
  return layouts;
}

}  // namespace ahead::tracing
