#include <algorithm>

#include "native/lower/places.h"
#include "native/lower/small_product.h"

namespace ahead::native {
namespace {

constexpr int64_t most_of_short = 4;
/// Where sums are not along rows, so many numbers are summed up at once for each row.
constexpr int64_t most_sums = 256;
constexpr const char* left_to_libraries = "a library multiplies such matrices";

bool is_addmm(const Node& node) {
  static const Operator* const addmm = Operator::find("aten.addmm");
  return &node.op() == addmm;
}

/// Where the left operand is among the arguments; the right one follows.
size_t left_of(const Node& node) {
  return is_addmm(node) ? 1 : 0;
}

bool is_factor_one(const Argument& argument) {
  return argument.is_constant() && argument.constant().toScalar().equal(1);
}

std::optional<Work> product_work(const Node& node) {
  const auto small = small_product(node);
  if (!small) return std::nullopt;
  using Short = SmallProduct::Short;
  const size_t left = left_of(node), right = left + 1;
  Work work;
  work.arguments.resize(node.args().size());
  if (small->which == Short::Inner) {
    work.space = {small->rows, small->columns};
    work.arguments[left] = {0, -1};
    work.arguments[right] = {-1, 1};
    work.results = {{0, 1}};
    work.picked = 3u << left;
    if (!is_addmm(node)) return work;
    const auto added = broadcast_place(node.args()[0].value()->meta.sizes, work.space);
    if (!added) return std::nullopt;
    work.arguments[0] = *added;
    return work;
  }
  // What is added would have to wait for the sums.
  if (is_addmm(node)) return std::nullopt;
  if (small->which == Short::Columns) {
    work.space = {small->rows, small->inner};
    work.arguments = {{0, 1}, {1, -1}};
    work.results = {{0, -1}};
    work.picked = 2;
  } else {
    work.space = {small->inner, small->columns};
    work.arguments = {{-1, 0}, {0, 1}};
    work.results = {{-1, 1}};
    work.picked = 1;
  }
  return work;
}

void product(Emitter& e) {
  const SmallProduct small = *small_product(e.node());
  const size_t left = left_of(e.node()), right = left + 1;
  const Type type = *compute_type(e.node().result(0)->meta.dtype);
  switch (small.which) {
    case SmallProduct::Short::Inner: {
      std::optional<Formula> sum;
      if (is_addmm(e.node())) sum = e.in(0);
      for (int64_t i = 0; i < small.inner; ++i) {
        const Formula one = e.element(left, 1, i).as(type) * e.element(right, 0, i).as(type);
        sum = sum ? *sum + one : one;
      }
      return e.out(0, *sum);
    }
    case SmallProduct::Short::Rows:
      for (int64_t i = 0; i < small.rows; ++i)
        e.out_sum_at(0, 0, i, e.element(left, 0, i).as(type) * e.in(right));
      return;
    case SmallProduct::Short::Columns:
      for (int64_t i = 0; i < small.columns; ++i)
        e.out_sum_at(0, 1, i, e.in(left) * e.element(right, 1, i).as(type));
      return;
  }
}

}  // namespace

std::optional<SmallProduct> small_product(const Node& product) {
  const size_t left = left_of(product);
  if (left != 0 && (!is_factor_one(product.args()[3]) || !is_factor_one(product.args()[4])))
    return std::nullopt;
  if (!product.args()[left].is_value() || !product.args()[left + 1].is_value()) return std::nullopt;
  const TensorMeta &one = product.args()[left].value()->meta,
                   &other = product.args()[left + 1].value()->meta,
                   &result = product.result(0)->meta;
  const bool is_plain = one.is_fixed() && other.is_fixed() && one.dtype == result.dtype &&
                        other.dtype == result.dtype && compute_type(result.dtype) &&
                        is_float(*compute_type(result.dtype));
  if (!is_plain || one.sizes.size() != 2 || other.sizes.size() != 2) return std::nullopt;
  const int64_t rows = one.sizes[0].fixed(), inner = one.sizes[1].fixed(),
                columns = other.sizes[1].fixed();
  const int64_t least = std::min({rows, inner, columns});
  if (least > most_of_short || least == 0) return std::nullopt;
  using Short = SmallProduct::Short;
  const Short which = inner == least ? Short::Inner : rows == least ? Short::Rows : Short::Columns;
  const bool sums_over_rows =
      (which == Short::Rows && columns != 1 && other.strides[1] == 1) ||
      (which == Short::Columns && one.strides[1] != 1);
  if (sums_over_rows && least * (which == Short::Rows ? columns : rows) > most_sums)
    return std::nullopt;
  return SmallProduct{which, rows, inner, columns};
}

const Rule product_rules[] = {
    {"aten.mm", product_work, product, left_to_libraries},
    {"aten.addmm", product_work, product, left_to_libraries},
    {nullptr, nullptr, nullptr},
};

}  // namespace ahead::native
