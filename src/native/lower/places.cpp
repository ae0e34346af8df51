#include "native/lower/places.h"

namespace ahead::native {

std::optional<Work::Place> broadcast_place(const Dims& sizes,
                                           const c10::SmallVectorImpl<int64_t>& space) {
  if (sizes.size() > space.size()) return std::nullopt;
  const size_t first = space.size() - sizes.size();
  Work::Place place;
  for (size_t i = 0; i < sizes.size(); ++i) {
    const int64_t size = at::IntArrayRef(sizes)[i];
    if (size != 1 && size != space[first + i]) return std::nullopt;
    place.push_back(size == 1 ? -1 : static_cast<int8_t>(first + i));
  }
  return place;
}

std::optional<Work> work_over(const Node& node, const TensorMeta& meta) {
  Work work;
  for (const int64_t size : at::IntArrayRef(meta.sizes)) work.space.push_back(size);
  for (const Argument& argument : node.args()) {
    if (!argument.is_value()) {
      if (argument.is_list() || argument.is_graph()) return std::nullopt;
      work.arguments.emplace_back();
      continue;
    }
    const auto place = broadcast_place(argument.value()->meta.sizes, work.space);
    if (!place) return std::nullopt;
    work.arguments.push_back(*place);
  }
  return work;
}

Work::Place place_without(size_t num_dims, uint32_t gone, bool kept) {
  Work::Place place;
  for (size_t dim = 0; dim < num_dims; ++dim) {
    if ((gone >> dim & 1) == 0) {
      place.push_back(static_cast<int8_t>(dim));
    } else if (kept) {
      place.push_back(-1);
    }
  }
  return place;
}

uint32_t dims_in(const Argument& argument, size_t num_dims) {
  const uint32_t all = (1u << num_dims) - 1;
  if (!argument.is_constant() || argument.constant().isNone()) return all;
  const c10::IValue& constant = argument.constant();
  uint32_t dims = 0;
  const auto add = [&](int64_t dim) {
    if (num_dims != 0) dims |= 1u << (dim < 0 ? dim + static_cast<int64_t>(num_dims) : dim);
  };
  if (constant.isInt()) {
    add(constant.toInt());
  } else {
    const std::vector<int64_t> list = constant.toIntVector();
    if (list.empty()) return all;
    for (const int64_t dim : list) add(dim);
  }
  return dims;
}

}  // namespace ahead::native
