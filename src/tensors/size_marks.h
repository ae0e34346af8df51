#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/TensorImpl.h>

#include <cstdint>
#include <vector>

/// What is said about the sizes of a tensor; see ahead/mark.h.
namespace ahead::tensors {

/// A set of dimensions, one bit for each.
using DimSet = uint64_t;

/// The marks of a tensor. They go with it, and with what detach() makes of it. Frozen.
struct SizeMarks final : c10::BackendMeta {
  SizeMarks(DimSet dynamic_dims, DimSet weak_dims, DimSet static_dims)
      : is_dynamic(dynamic_dims), is_weak(weak_dims), is_static(static_dims) {}

  const DimSet is_dynamic;  ///< by the user
  const DimSet is_weak;     ///< dynamic as well, but mark_static() takes precedence
  const DimSet is_static;
};

/// Those of a tensor; null: there are none.
inline const SizeMarks* marks_of(const at::Tensor& tensor) {
  c10::BackendMeta* meta = tensor.unsafeGetTensorImpl()->get_backend_meta();
  return meta == nullptr ? nullptr : dynamic_cast<const SizeMarks*>(meta);
}

/// The dimensions that are marked as changing.
inline DimSet changing_dims(const at::Tensor& tensor) {
  const SizeMarks* marks = marks_of(tensor);
  return marks == nullptr ? 0 : marks->is_dynamic | marks->is_weak;
}

/// Whether the user marked a dimension of some tensor as changing.
bool is_any_dynamic(const std::vector<at::Tensor>& tensors);
/// The dimensions of tensors that are marked as static, and their sizes.
std::vector<int64_t> static_sizes(const std::vector<at::Tensor>& tensors);

/// Marks for many tensors at once; null if the set is empty.
c10::intrusive_ptr<SizeMarks> weak_marks(DimSet dims);

/// Gives marks to a tensor that has none.
inline void set_marks(const at::Tensor& tensor, const c10::intrusive_ptr<SizeMarks>& marks) {
  c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  if (impl.get_backend_meta() == nullptr) impl.set_backend_meta(marks);
}

}  // namespace ahead::tensors
