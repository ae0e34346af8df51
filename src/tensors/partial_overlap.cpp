#include "tensors/partial_overlap.h"

#include <algorithm>
#include <map>
#include <vector>

namespace ahead::tracing {
namespace {

using Dims = std::vector<std::pair<int64_t, int64_t>>;  // sizes and strides

/// The dimensions that have more than one element.
Dims real_dims(const at::Tensor& tensor) {
  Dims dims;
  for (int64_t dim = 0; dim < tensor.dim(); ++dim) {
    if (tensor.size(dim) != 1) dims.emplace_back(tensor.size(dim), tensor.stride(dim));
  }
  return dims;
}

/// Looks for integers in given ranges whose products with the strides add up to a distance.
class Distance {
 public:
  Distance(const at::Tensor& a, const at::Tensor& b) {
    std::map<int64_t, Term, std::greater<>> by_stride;
    for (const auto& [size, stride] : real_dims(a)) by_stride[stride].high += size - 1;
    for (const auto& [size, stride] : real_dims(b)) by_stride[stride].low -= size - 1;
    for (auto& [stride, term] : by_stride) {
      term.stride = stride;
      if (stride != 0) terms_.push_back(term);
    }
    for (size_t i = terms_.size(); i-- > 0;) {
      const bool last = i + 1 == terms_.size();
      terms_[i].rest_low = last ? 0 : terms_[i + 1].rest_low + terms_[i + 1].reach_low();
      terms_[i].rest_high = last ? 0 : terms_[i + 1].rest_high + terms_[i + 1].reach_high();
    }
  }

  bool can_be(int64_t distance) { return can_be(distance, 0); }

 private:
  struct Term {
    int64_t stride = 0, low = 0, high = 0;
    int64_t rest_low = 0, rest_high = 0;  ///< what the smaller strides can add
    int64_t reach_low() const { return low * stride; }
    int64_t reach_high() const { return high * stride; }
  };

  static int64_t divide_down(int64_t a, int64_t b) { return a / b - (a % b < 0 ? 1 : 0); }

  bool can_be(int64_t distance, size_t next) {
    if (next == terms_.size()) return distance == 0;
    if (--steps_left_ < 0) return true;
    const Term& term = terms_[next];
    const int64_t from = std::max(term.low, -divide_down(term.rest_high - distance, term.stride));
    const int64_t to = std::min(term.high, divide_down(distance - term.rest_low, term.stride));
    for (int64_t factor = from; factor <= to; ++factor) {
      if (can_be(distance - factor * term.stride, next + 1)) return true;
    }
    return false;
  }

  std::vector<Term> terms_;
  int64_t steps_left_ = 100'000;
};

}  // namespace

bool overlaps_partly(const at::Tensor& a, const at::Tensor& b) {
  if (a.numel() == 0 || b.numel() == 0) return false;
  if (a.storage_offset() == b.storage_offset() && real_dims(a) == real_dims(b)) {
    // LibTorch compares all strides of dense tensors, those of dimensions of size 1 included.
    const bool are_dense = a.is_non_overlapping_and_dense() && b.is_non_overlapping_and_dense();
    return are_dense && a.strides() != b.strides();
  }
  return Distance(a, b).can_be(b.storage_offset() - a.storage_offset());
}

}  // namespace ahead::tracing
