#include "observe/tape/expect.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/equal.h>
#include <torch/library.h>

#include <cstring>

namespace ahead::observe {
namespace {

bool is_same(const c10::Scalar& a, const c10::Scalar& b) {
  if (a.isComplex() || b.isComplex()) return a.toComplexDouble() == b.toComplexDouble();
  if (!a.isFloatingPoint() && !b.isFloatingPoint()) return a.toLong() == b.toLong();
  const double x = a.toDouble(), y = b.toDouble();
  return std::memcmp(&x, &y, sizeof x) == 0;
}

void check_value(const at::Tensor& value, const c10::Scalar& expected) {
  if (!is_same(value.item(), expected)) throw ValueMismatch();
}

void check_equal(const at::Tensor& a, const at::Tensor& b, bool expected) {
  if (at::equal(a, b) != expected) throw ValueMismatch();
}

void check_sizes(const at::Tensor& sized, c10::SymIntArrayRef expected) {
  if (sized.sizes() != C10_AS_INTARRAYREF_SLOW(expected)) throw ValueMismatch();
}

void believe_value(const at::Tensor&, const c10::Scalar&) {}
void believe_equal(const at::Tensor&, const at::Tensor&, bool) {}
void believe_sizes(const at::Tensor&, c10::SymIntArrayRef) {}

}  // namespace

void expect(const at::Tensor& value, const c10::Scalar& expected) {
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("ahead::expect", "")
                             .typed<void(const at::Tensor&, const c10::Scalar&)>();
  op.call(value, expected);
}

void expect_equal(const at::Tensor& a, const at::Tensor& b, bool expected) {
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("ahead::expect_equal", "")
                             .typed<void(const at::Tensor&, const at::Tensor&, bool)>();
  op.call(a, b, expected);
}

void expect_sizes(const at::Tensor& sized, at::IntArrayRef expected) {
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("ahead::expect_sizes", "")
                             .typed<void(const at::Tensor&, c10::SymIntArrayRef)>();
  op.call(sized, c10::fromIntArrayRefSlow(expected));
}

TORCH_LIBRARY_FRAGMENT(ahead, library) {
  library.def("expect(Tensor value, Scalar expected) -> ()");
  library.def("expect_equal(Tensor a, Tensor b, bool expected) -> ()");
  library.def("expect_sizes(Tensor sized, SymInt[] expected) -> ()");
}

TORCH_LIBRARY_IMPL(ahead, CPU, library) {
  library.impl("expect", check_value);
  library.impl("expect_equal", check_equal);
  library.impl("expect_sizes", check_sizes);
}

TORCH_LIBRARY_IMPL(ahead, CUDA, library) {
  library.impl("expect", check_value);
  library.impl("expect_equal", check_equal);
  library.impl("expect_sizes", check_sizes);
}

TORCH_LIBRARY_IMPL(ahead, Meta, library) {
  library.impl("expect", believe_value);
  library.impl("expect_equal", believe_equal);
  library.impl("expect_sizes", believe_sizes);
}

}  // namespace ahead::observe
