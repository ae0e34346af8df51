#include "native/slices/node_cuts.h"

#include <algorithm>
#include <numeric>

#include "ops/facts/facts.h"
#include "ops/facts/node_facts.h"

namespace ahead::native {
namespace {

/// How many leading dimensions make up the batch; 0: none do.
size_t batch_dims(const TensorMeta& meta, int64_t batch) {
  int64_t product = 1;
  for (size_t dim = 0; dim < meta.sizes.size(); ++dim) {
    product *= meta.sizes[dim].fixed();
    if (product == batch) return dim + 1;
    if (product == 0 || batch % product != 0) return 0;
  }
  return 0;
}

/// The cut of a tensor that is broadcast to `like`, whose first `count` dimensions are the batch.
Cut cut_of(const TensorMeta& meta, const TensorMeta& like, size_t count) {
  Cut cut;
  int64_t inner = 1;
  const size_t shift = like.sizes.size() - meta.sizes.size();
  for (size_t dim = count; dim-- > 0;) {
    const int64_t size = like.sizes[dim].fixed();
    const bool has_dim = dim >= shift && meta.sizes[dim - shift] == size;
    if (has_dim && size != 1)
      cut.push_back({static_cast<int64_t>(dim - shift), size, inner, dim + 1 == count});
    inner *= size;
  }
  return cut;
}

/// Whether a tensor may be repeated along dimensions to be like the other one.
bool is_repeated_to(const TensorMeta& meta, const TensorMeta& like) {
  if (meta.sizes.size() > like.sizes.size()) return false;
  const size_t shift = like.sizes.size() - meta.sizes.size();
  for (size_t dim = 0; dim < meta.sizes.size(); ++dim) {
    if (meta.sizes[dim] != 1 && meta.sizes[dim] != like.sizes[dim + shift]) return false;
  }
  return true;
}

/// What an operator does, as far as batches are concerned.
enum class Kind : uint8_t { Product, Pointwise, AlongOne, Resize, Transpose };

struct Known {
  const char* name;
  Kind kind;
  size_t dim = 0;  ///< AlongOne, Transpose: the argument that names the dimension, or the first
};

constexpr Known known_operators[] = {
    {"aten.bmm", Kind::Product},
    {"aten._softmax", Kind::AlongOne, 1},
    {"aten._log_softmax", Kind::AlongOne, 1},
    {"aten._softmax_backward_data", Kind::AlongOne, 2},
    {"aten._log_softmax_backward_data", Kind::AlongOne, 2},
    {"aten.view", Kind::Resize},
    {"aten._unsafe_view", Kind::Resize},
    {"aten.expand", Kind::Resize},
    {"aten.transpose.int", Kind::Transpose, 1},
};

std::optional<Known> known(const Node& node) {
  for (const Known& one : known_operators) {
    if (node.op().name() == one.name) return one;
  }
  // Our own class has operators too that know the place of an element, or how many there are.
  const ops::OpFacts& facts = ops::facts(node.op());
  const bool is_pointwise = node.op().handle().hasTag(at::Tag::pointwise) &&
                            facts.op_class == ops::OpClass::Pointwise && facts.writes.empty() &&
                            facts.view == ops::ViewKind::None && !ops::is_random(node) &&
                            !ops::has_effect(node);
  if (is_pointwise) return Known{"", Kind::Pointwise};
  return std::nullopt;
}

/// Whether the dimension that an argument names is behind those of the batch.
bool is_behind(const Node& node, size_t argument, size_t count) {
  const auto rank = static_cast<int64_t>(node.result()->meta.sizes.size());
  const int64_t dim = node.args()[argument].constant().toInt();
  return (dim < 0 ? dim + rank : dim) >= static_cast<int64_t>(count);
}

bool has_plain_tensors(const Node& node) {
  const auto is_plain = [](const TensorMeta& meta) {
    return meta.is_fixed() && meta.device.is_cpu();
  };
  if (node.results().size() != 1 || node.result() == nullptr || !is_plain(node.result()->meta))
    return false;
  return std::all_of(node.args().begin(), node.args().end(), [&](const Argument& argument) {
    return argument.is_value() ? is_plain(argument.value()->meta) : argument.is_constant();
  });
}

}  // namespace

std::optional<NodeCuts> cuts_of(const Node& node, int64_t batch) {
  if (!node.op().in_dispatcher() || !has_plain_tensors(node)) return std::nullopt;
  const auto what = known(node);
  if (!what) return std::nullopt;
  const TensorMeta& result = node.result()->meta;
  const size_t count = batch_dims(result, batch);
  if (count == 0 || (what->kind == Kind::Product && count != 1)) return std::nullopt;
  if (what->kind == Kind::AlongOne && !is_behind(node, what->dim, count)) return std::nullopt;
  if (what->kind == Kind::Transpose &&
      !(is_behind(node, what->dim, count) && is_behind(node, what->dim + 1, count)))
    return std::nullopt;
  NodeCuts cuts;
  cuts.result = cut_of(result, result, count);
  cuts.common = result.sizes[count - 1].fixed();
  cuts.takes_sizes = what->kind == Kind::Resize;
  for (const Argument& argument : node.args()) {
    if (!argument.is_value()) {
      cuts.arguments.emplace_back();
      continue;
    }
    const TensorMeta& meta = argument.value()->meta;
    if (what->kind != Kind::Resize) {
      if (what->kind == Kind::Product && meta.sizes[0] != batch) return std::nullopt;
      if (what->kind == Kind::Pointwise && !is_repeated_to(meta, result)) return std::nullopt;
      cuts.arguments.push_back(what->kind == Kind::Product ? cut_of(meta, meta, 1)
                                                           : cut_of(meta, result, count));
      continue;
    }
    // Elements are in the same order before and after, so that the matrices are the same.
    const size_t own = batch_dims(meta, batch);
    if (own == 0 || meta.numel() != result.numel()) return std::nullopt;
    cuts.arguments.push_back(cut_of(meta, meta, own));
    cuts.common = std::gcd(cuts.common, meta.sizes[own - 1].fixed());
  }
  return cuts;
}

}  // namespace ahead::native
