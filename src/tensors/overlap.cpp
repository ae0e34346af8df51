#include "tensors/overlap.h"

#include <algorithm>
#include <vector>

namespace ahead {
namespace {

/// Tensors that span more than this are not compared element by element.
constexpr int64_t most_elements = 1 << 20;

struct Range {
  int64_t first, last;  ///< in bytes from the start of the storage; `last` is excluded
};

Range range_of(const at::Tensor& tensor) {
  const auto size = static_cast<int64_t>(tensor.element_size());
  int64_t reach = 0;
  for (int64_t i = 0; i < tensor.dim(); ++i) reach += (tensor.size(i) - 1) * tensor.stride(i);
  const int64_t first = tensor.storage_offset() * size;
  return {first, first + (reach + 1) * size};
}

/// Calls visit with the place of every element, in elements from the start of the storage.
template <class Visit>
void for_each_place(const at::Tensor& tensor, Visit&& visit) {
  std::vector<int64_t> index(static_cast<size_t>(tensor.dim()), 0);
  int64_t place = tensor.storage_offset();
  for (int64_t i = 0; i < tensor.numel(); ++i) {
    visit(place);
    for (int64_t d = tensor.dim(); d-- > 0;) {
      const auto at = static_cast<size_t>(d);
      place += tensor.stride(d);
      if (++index[at] < tensor.size(d)) break;
      place -= tensor.size(d) * tensor.stride(d);
      index[at] = 0;
    }
  }
}

bool share_an_element(const at::Tensor& a, const at::Tensor& b) {
  const auto size = static_cast<int64_t>(a.element_size());
  const Range all{std::min(range_of(a).first, range_of(b).first) / size,
                  std::max(range_of(a).last, range_of(b).last) / size};
  std::vector<bool> taken(static_cast<size_t>(all.last - all.first));
  for_each_place(a, [&](int64_t place) { taken[static_cast<size_t>(place - all.first)] = true; });
  bool shared = false;
  for_each_place(b,
                 [&](int64_t place) { shared |= taken[static_cast<size_t>(place - all.first)]; });
  return shared;
}

}  // namespace

bool overlap(const at::Tensor& a, const at::Tensor& b) {
  if (!a.has_storage() || !b.has_storage() || !a.is_alias_of(b)) return false;
  if (a.numel() == 0 || b.numel() == 0) return false;
  const Range first = range_of(a), second = range_of(b);
  if (first.last <= second.first || second.last <= first.first) return false;
  const bool is_dense = a.is_non_overlapping_and_dense() && b.is_non_overlapping_and_dense();
  const int64_t reach = std::max(first.last, second.last) - std::min(first.first, second.first);
  if (is_dense || a.element_size() != b.element_size() ||
      reach / static_cast<int64_t>(a.element_size()) > most_elements) {
    return true;
  }
  return share_an_element(a, b);
}

}  // namespace ahead
