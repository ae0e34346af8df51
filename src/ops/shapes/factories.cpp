#include <algorithm>

#include "ops/shapes/families.h"
#include "ops/shapes/layouts.h"
#include "ops/shapes/make.h"

namespace ahead::ops::shapes {
namespace {

using at::Scalar;
using at::Tensor;
using OptionalDevice = std::optional<at::Device>;
using OptionalLayout = std::optional<at::Layout>;
using OptionalType = std::optional<at::ScalarType>;
using OptionalBool = std::optional<bool>;

// How many elements of a matrix lie on or below its offset-th diagonal.
int64_t lower_triangle(int64_t rows, int64_t columns, int64_t offset) {
  int64_t count = 0;
  for (int64_t row = 0; row < rows; ++row) {
    count += std::clamp<int64_t>(row + offset + 1, 0, columns);
  }
  return count;
}

Tensor tril_indices(int64_t rows, int64_t columns, int64_t offset, OptionalType dtype,
                    OptionalLayout, OptionalDevice, OptionalBool) {
  TORCH_CHECK(rows >= 0 && columns >= 0, "row and col must be non-negative, got ", rows, " and ",
              columns);
  return make({2, lower_triangle(rows, columns, offset)}, dtype.value_or(at::kLong));
}

Tensor triu_indices(int64_t rows, int64_t columns, int64_t offset, OptionalType dtype,
                    OptionalLayout, OptionalDevice, OptionalBool) {
  TORCH_CHECK(rows >= 0 && columns >= 0, "row and col must be non-negative, got ", rows, " and ",
              columns);
  return make({2, rows * columns - lower_triangle(rows, columns, offset - 1)},
              dtype.value_or(at::kLong));
}

// The dtype of linspace and logspace. Whether the ends are tensors makes no difference.
at::ScalarType space_type(bool complex_ends, OptionalType asked) {
  const at::ScalarType real = c10::get_default_dtype_as_scalartype();
  return asked.value_or(complex_ends ? c10::toComplexType(real) : real);
}

Tensor space(bool complex_ends, int64_t steps, OptionalType dtype) {
  TORCH_CHECK(steps >= 0, "number of steps must be non-negative");
  return make({steps}, space_type(complex_ends, dtype));
}

bool makes_complex(const Tensor& end) {
  return at::isComplexType(end.scalar_type());
}
bool makes_complex(const Scalar& end) {
  return end.isComplex();
}

template <class Start, class End>
Tensor linspace(const Start& start, const End& end, int64_t steps, OptionalType dtype,
                OptionalLayout, OptionalDevice, OptionalBool) {
  return space(makes_complex(start) || makes_complex(end), steps, dtype);
}

template <class Start, class End>
Tensor logspace(const Start& start, const End& end, int64_t steps, double, OptionalType dtype,
                OptionalLayout, OptionalDevice, OptionalBool) {
  return space(makes_complex(start) || makes_complex(end), steps, dtype);
}

Tensor dep_token(OptionalType dtype, OptionalLayout, OptionalDevice, OptionalBool,
                 std::optional<at::MemoryFormat>) {
  return make(at::IntArrayRef{}, dtype.value_or(c10::get_default_dtype_as_scalartype()));
}

void assert_true(const Tensor&) {}
void assert_true_or_say(const Tensor&, std::string_view) {}

Tensor assert_after(const Tensor&, std::string_view, const Tensor& token) {
  return make_like(token);
}

/// The numbers from `start` up to `end`, all integers; `step` is one if there is none.
Layouts range_layout(const LayoutCall& call, Dim start, size_t end, int64_t step) {
  const auto is_integer = [&](size_t index) {
    return call.arguments[index].isInt() || call.arguments[index].isSymInt();
  };
  if (!is_integer(end) || step == 0) call.refuse("it does not count by integers");
  const Dim length = call.integer(end) - start;
  const Dim steps = step > 0 ? (length + (step - 1)) / step : (Dim(0) - length - step - 1) / -step;
  return {Layout::contiguous({steps})};
}

Layouts arange_layout(const LayoutCall& call) {
  return range_layout(call, 0, 0, 1);
}

Layouts arange_from_layout(const LayoutCall& call) {
  if (call.arguments[0].isDouble()) call.refuse("it does not count by integers");
  return range_layout(call, call.integer(0), 1, 1);
}

Layouts arange_by_steps_layout(const LayoutCall& call) {
  if (call.arguments[0].isDouble() || !call.arguments[2].isInt())
    call.refuse("it does not count by integers of which the step is fixed");
  return range_layout(call, call.integer(0), 1, call.number(2));
}

}  // namespace

void add_factory_rules(ShapeRules& rules) {
  rules.add("tril_indices", TORCH_FN(tril_indices));
  rules.add("triu_indices", TORCH_FN(triu_indices));
  rules.add("linspace.Tensor_Tensor", TORCH_FN((linspace<Tensor, Tensor>)));
  rules.add("linspace.Tensor_Scalar", TORCH_FN((linspace<Tensor, Scalar>)));
  rules.add("linspace.Scalar_Tensor", TORCH_FN((linspace<Scalar, Tensor>)));
  rules.add("logspace.Tensor_Tensor", TORCH_FN((logspace<Tensor, Tensor>)));
  rules.add("logspace.Tensor_Scalar", TORCH_FN((logspace<Tensor, Scalar>)));
  rules.add("logspace.Scalar_Tensor", TORCH_FN((logspace<Scalar, Tensor>)));
  rules.add("_make_dep_token", TORCH_FN(dep_token));
  rules.add("_assert_async", TORCH_FN(assert_true));
  rules.add("_assert_async.msg", TORCH_FN(assert_true_or_say));
  rules.add("_functional_assert_async.msg", TORCH_FN(assert_after));
  rules.add_layout("arange", arange_layout);
  rules.add_layout("arange.start", arange_from_layout);
  rules.add_layout("arange.start_step", arange_by_steps_layout);
  rules.add_layout("rand", listed_layout<0>);
  rules.add_layout("randn", listed_layout<0>);
  rules.add_layout("zeros", listed_layout<0>);
  rules.add_layout("ones", listed_layout<0>);
  rules.add_layout("full", listed_layout<0>);
  rules.add_layout("empty.memory_format", listed_layout<0>);
  rules.add_layout("new_zeros", listed_layout<1>);
  rules.add_layout("new_ones", listed_layout<1>);
  rules.add_layout("new_full", listed_layout<1>);
  rules.add_layout("new_empty", listed_layout<1>);
  rules.add_layout("empty_strided", listed_with_strides_layout<0>);
  rules.add_layout("new_empty_strided", listed_with_strides_layout<1>);
  rules.add_layout("zeros_like", like_layout<0>);
  rules.add_layout("ones_like", like_layout<0>);
  rules.add_layout("full_like", like_layout<0>);
  rules.add_layout("empty_like", like_layout<0>);
  rules.add_layout("fill.Scalar", like_layout<0>);
}

}  // namespace ahead::ops::shapes
