#include "runtime/node/variants.h"

#include <atomic>

#include "ops/facts/sparse_values.h"

namespace ahead::runtime {
namespace {

uint64_t next_id() {
  static std::atomic<uint64_t> next = 0;
  return next++;
}

std::vector<TensorMeta> at_sizes(std::vector<TensorMeta> metas, c10::ArrayRef<int64_t> sizes) {
  for (TensorMeta& meta : metas) {
    meta.sizes = meta.sizes.at(sizes);
    meta.strides = meta.strides.at(sizes);
    meta.offset = meta.offset.at(sizes);
  }
  return metas;
}

}  // namespace

BackwardVariants::BackwardVariants(const Graph& graph, Order order)
    : id_(next_id()),
      order_(std::move(order)),
      makes_sparse_(ops::SparseValues(graph).is_any()) {
  for (const Graph::Input& input : graph.inputs()) {
    if (input.slot.kind == Slot::Kind::Sizes) continue;
    const bool is_tangent = input.slot.kind == Slot::Kind::Tangent;
    (is_tangent ? tangents_ : saved_).push_back(input.value->meta);
  }
}

BackwardVariants::BackwardVariants(const BackwardVariants& general, std::vector<int64_t> sizes)
    : id_(general.id_),
      sizes_(std::move(sizes)),
      order_(general.order_),
      makes_sparse_(general.makes_sparse_),
      saved_(at_sizes(general.saved_, sizes_)),
      tangents_(at_sizes(general.tangents_, sizes_)) {}

}  // namespace ahead::runtime
