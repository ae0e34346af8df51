#include "tensors/size_marks.h"

#include <algorithm>
#include <string>

#include "ahead/errors.h"
#include "ahead/mark.h"

namespace ahead {
namespace tensors {
namespace {

constexpr int64_t most_dims = 64;

/// The set of one dimension, if marks can be had of it.
DimSet checked_dim(const char* function, const at::Tensor& tensor, int64_t dim) {
  if (!tensor.defined()) throw UserError(function, "tensor: it is undefined. Make it first.");
  if (tensor.is_nested() || tensor.layout() != at::kStrided)
    throw UserError(function, "tensor: it is not dense, so that no sizes of it are looked at.");
  const int64_t count = tensor.dim();
  if (dim < -count || dim >= count || count > most_dims)
    throw UserError(function, "dim: " + std::to_string(dim) + " is no dimension of a tensor with " +
                                  std::to_string(count) + ". Choose one from " +
                                  std::to_string(-count) + " to " + std::to_string(count - 1) +
                                  ".");
  return DimSet{1} << (dim < 0 ? dim + count : dim);
}

[[noreturn]] void throw_contradiction(const char* function, const char* other, int64_t dim) {
  throw UserError(function, "dim: " + std::to_string(dim) + " was given to " + other +
                                " before. Mark it as one of them.");
}

/// Puts marks in place of those that a tensor has.
void replace_marks(const char* function, const at::Tensor& tensor, DimSet dynamic_dims,
                   DimSet weak_dims, DimSet static_dims) {
  c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  if (impl.get_backend_meta() != nullptr && marks_of(tensor) == nullptr)
    throw Unsupported(function, "tensor: its device keeps data of its own where marks are kept.");
  impl.set_backend_meta(c10::make_intrusive<SizeMarks>(dynamic_dims, weak_dims, static_dims));
}

}  // namespace

c10::intrusive_ptr<SizeMarks> weak_marks(DimSet dims) {
  return dims == 0 ? nullptr : c10::make_intrusive<SizeMarks>(0, dims, 0);
}

bool is_any_dynamic(const std::vector<at::Tensor>& tensors) {
  return std::any_of(tensors.begin(), tensors.end(), [](const at::Tensor& tensor) {
    const SizeMarks* marks = marks_of(tensor);
    return marks != nullptr && marks->is_dynamic != 0;
  });
}

std::vector<int64_t> static_sizes(const std::vector<at::Tensor>& tensors) {
  std::vector<int64_t> sizes;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const SizeMarks* marks = marks_of(tensors[i]);
    if (marks == nullptr) continue;
    for (int64_t dim = 0; dim < tensors[i].dim(); ++dim) {
      if ((marks->is_static >> dim & 1) == 0) continue;
      sizes.insert(sizes.end(), {static_cast<int64_t>(i), dim, tensors[i].size(dim)});
    }
  }
  return sizes;
}

}  // namespace tensors

void mark_dynamic(const at::Tensor& tensor, int64_t dim) {
  using tensors::DimSet, tensors::SizeMarks;
  const DimSet marked = tensors::checked_dim("mark_dynamic", tensor, dim);
  const SizeMarks* now = tensors::marks_of(tensor);
  if (now != nullptr && (now->is_static & marked) != 0)
    tensors::throw_contradiction("mark_dynamic", "mark_static", dim);
  tensors::replace_marks("mark_dynamic", tensor, (now == nullptr ? 0 : now->is_dynamic) | marked,
                         now == nullptr ? 0 : now->is_weak, now == nullptr ? 0 : now->is_static);
}

void mark_static(const at::Tensor& tensor, int64_t dim) {
  using tensors::DimSet, tensors::SizeMarks;
  const DimSet marked = tensors::checked_dim("mark_static", tensor, dim);
  const SizeMarks* now = tensors::marks_of(tensor);
  if (now != nullptr && (now->is_dynamic & marked) != 0)
    tensors::throw_contradiction("mark_static", "mark_dynamic", dim);
  tensors::replace_marks("mark_static", tensor, now == nullptr ? 0 : now->is_dynamic,
                         now == nullptr ? 0 : now->is_weak & ~marked,
                         (now == nullptr ? 0 : now->is_static) | marked);
}

std::vector<int64_t> dynamic_dims(const at::Tensor& tensor) {
  if (!tensor.defined()) throw UserError("dynamic_dims", "tensor: it is undefined.");
  std::vector<int64_t> dims;
  const tensors::DimSet marked = tensors::changing_dims(tensor);
  for (int64_t dim = 0; dim < tensor.dim(); ++dim) {
    if ((marked >> dim & 1) != 0) dims.push_back(dim);
  }
  return dims;
}

}  // namespace ahead
