#include "trace/eager/padded_rows.h"

#include <ATen/EmptyTensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/enum_tag.h>
#include <ATen/ops/embedding_sparse_backward.h>
#include <torch/library.h>

namespace ahead::tracing {
namespace {

at::Tensor make_padded_rows(const at::Tensor& gradient, const at::Tensor& indices,
                            c10::SymInt rows, c10::SymInt padding) {
  return at::embedding_sparse_backward(gradient, indices, rows.guard_int(__FILE__, __LINE__),
                                       padding.guard_int(__FILE__, __LINE__),
                                       /*scale_grad_by_freq=*/false);
}

/// Described as the dense tensor of the same sizes: see ops/facts/sparse_values.h.
at::Tensor describe_padded_rows(const at::Tensor& gradient, const at::Tensor&, c10::SymInt rows,
                                c10::SymInt) {
  return at::Tensor(at::detail::empty_meta(
      {rows.guard_int(__FILE__, __LINE__), gradient.size(-1)}, gradient.scalar_type()));
}

}  // namespace

at::Tensor padded_rows(const at::Tensor& gradient, const at::Tensor& indices, c10::SymInt rows,
                       c10::SymInt padding) {
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("ahead::padded_rows", "")
                             .typed<at::Tensor(const at::Tensor&, const at::Tensor&, c10::SymInt,
                                               c10::SymInt)>();
  return op.call(gradient, indices, std::move(rows), std::move(padding));
}

TORCH_LIBRARY_FRAGMENT(ahead, library) {
  library.def("padded_rows(Tensor gradient, Tensor indices, SymInt rows, SymInt padding) -> Tensor",
              {at::Tag::maybe_aliasing_or_mutating});
}

TORCH_LIBRARY_IMPL(ahead, CompositeExplicitAutograd, library) {
  library.impl("padded_rows", make_padded_rows);
}

TORCH_LIBRARY_IMPL(ahead, Meta, library) {
  library.impl("padded_rows", describe_padded_rows);
}

}  // namespace ahead::tracing
