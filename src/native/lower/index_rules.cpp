#include <limits>

#include "native/lower/places.h"

namespace ahead::native {
namespace {

const TensorMeta& meta_of(const Node& node, size_t argument) {
  return node.args()[argument].value()->meta;
}

bool has_index_type(const TensorMeta& meta) {
  return meta.dtype == at::kLong || meta.dtype == at::kInt;
}

/// Whether places of a dimension of this size, and other numbers that stand for none, are numbers
/// of type I32.
bool fits_index(int64_t number) {
  return number >= std::numeric_limits<int32_t>::min() &&
         number <= std::numeric_limits<int32_t>::max();
}

int64_t size_at(const TensorMeta& meta, int64_t dim) {
  return at::IntArrayRef(meta.sizes)[static_cast<size_t>(dim)];
}

/// The dimension that an argument names.
int64_t dim_of(const Node& node, size_t argument, const TensorMeta& meta) {
  const int64_t dim = node.args()[argument].constant().toInt();
  return dim < 0 ? dim + static_cast<int64_t>(meta.sizes.size()) : dim;
}

Work::Place in_order(size_t first, size_t count) {
  Work::Place place;
  for (size_t i = 0; i < count; ++i) place.push_back(static_cast<int8_t>(first + i));
  return place;
}

/// The loops over the result, which has one element for each; arguments have no places yet.
std::optional<Work> over_result(const Node& node) {
  if (!node.result(0)->meta.is_fixed()) return std::nullopt;
  Work work;
  for (const int64_t size : at::IntArrayRef(node.result(0)->meta.sizes)) work.space.push_back(size);
  if (work.space.empty()) return std::nullopt;
  work.arguments.resize(node.args().size());
  work.results.push_back(in_order(0, work.space.size()));
  return work;
}

/// Rows of a table: the last dimension of the result is that of the table, those before are the
/// index's.
std::optional<Work> embedding_work(const Node& node) {
  const TensorMeta& table = meta_of(node, 0);
  auto work = over_result(node);
  if (!work || !has_index_type(meta_of(node, 1)) || !fits_index(size_at(table, 0)))
    return std::nullopt;
  const size_t last = work->space.size() - 1;
  work->arguments[0] = {-1, static_cast<int8_t>(last)};
  work->arguments[1] = in_order(0, last);
  work->picked = 3;
  return work;
}

void embedding(Emitter& e) {
  const int64_t rows = size_at(meta_of(e.node(), 0), 0);
  e.out(0, e.at(0, 0, e.index(1, rows)));
}

/// Elements of the argument 0 at the places along a dimension that the argument 2 has.
std::optional<Work> picking_work(const Node& node, bool has_one_index) {
  const TensorMeta &from = meta_of(node, 0), &index = meta_of(node, 2);
  auto work = over_result(node);
  if (!work || from.sizes.size() != work->space.size() || !has_index_type(index))
    return std::nullopt;
  const auto dim = static_cast<size_t>(dim_of(node, 1, from));
  if (!fits_index(size_at(from, static_cast<int64_t>(dim)))) return std::nullopt;
  work->arguments[0] = in_order(0, work->space.size());
  work->arguments[0][dim] = -1;
  if (!has_one_index) {
    work->arguments[2] = in_order(0, work->space.size());
  } else if (!index.sizes.empty()) {
    work->arguments[2] = {static_cast<int8_t>(dim)};
  }
  work->picked = 1 | 1 << 2;
  return work;
}

std::optional<Work> index_select_work(const Node& node) {
  return picking_work(node, true);
}

std::optional<Work> gather_work(const Node& node) {
  return picking_work(node, false);
}

void pick(Emitter& e) {
  const TensorMeta& from = meta_of(e.node(), 0);
  const int64_t dim = dim_of(e.node(), 1, from);
  e.out(0, e.at(0, static_cast<size_t>(dim), e.index(2, size_at(from, dim))));
}

/// Rows of the probabilities of classes, of each of which a number names one; `classes`: the
/// argument that has them, before the one that has the numbers.
std::optional<Work> of_classes(const Node& node, size_t classes, size_t ignored) {
  const TensorMeta &rows = meta_of(node, classes), &target = meta_of(node, classes + 1);
  const bool is_full = rows.dtype == at::kFloat || rows.dtype == at::kDouble;
  if (!is_full || rows.sizes.size() != 2 || size_at(rows, 0) == 1 || size_at(rows, 1) == 1)
    return std::nullopt;
  const bool fits_target = target.dtype == at::kLong && target.sizes.size() == 1;
  if (!fits_target || !fits_index(size_at(rows, 1)) ||
      !fits_index(node.args()[ignored].constant().toInt()))
    return std::nullopt;
  Work work;
  work.space = {size_at(rows, 0), size_at(rows, 1)};
  work.row_dims = 2;
  work.arguments.resize(node.args().size());
  work.arguments[classes] = {0, 1};
  work.arguments[classes + 1] = {0};
  work.picked = 1u << (classes + 1);
  return work;
}

/// The argument 2 of the forward and 3 of the backward weigh classes.
std::optional<Work> nll_work(const Node& node) {
  auto work = of_classes(node, 0, 4);
  if (!work) return work;
  if (node.args()[2].is_value()) {
    work->arguments[2] = {-1};
    work->picked |= 1 << 2;
  }
  const bool is_for_each = node.args()[3].constant().toInt() == 0;
  // The sum of the weights is nobody's then.
  if (is_for_each) {
    work->results.push_back({0});
  } else {
    work->results.resize(2);
  }
  return work;
}

std::optional<Work> nll_backward_work(const Node& node) {
  auto work = of_classes(node, 1, 5);
  if (!work) return work;
  const bool is_for_each = node.args()[4].constant().toInt() == 0;
  if (is_for_each) work->arguments[0] = {0};
  if (node.args()[3].is_value()) {
    work->arguments[3] = {-1};
    work->picked |= 1 << 3;
  }
  work->results.push_back({0, 1});
  return work;
}

/// The class that counts for a row, or any if none does.
struct Target {
  Formula index, counts, place;

  Target(Emitter& e, size_t classes, size_t ignored)
      : index(e.index(classes + 1, size_at(meta_of(e.node(), classes), 1),
                      e.node().args()[ignored].constant().toInt())),
        counts(!equal(index, index.number(e.number(ignored)))),
        place(select(counts, index, 0)) {}
};

void nll(Emitter& e) {
  const Target target(e, 0, 4);
  const Formula likelihood = e.at_position(e.in(0), target.place);
  const Formula weight =
      select(target.counts, e.has(2) ? e.at(2, 0, target.place) : likelihood.number(1), 0);
  const Formula loss = select(target.counts, -likelihood * weight, 0);
  const int64_t kind = e.node().args()[3].constant().toInt();
  if (kind == 0) return e.out(0, loss);
  kind == 1 ? e.out_sum_of_rows(0, loss, weight) : e.out_sum_of_rows(0, loss);
  e.out_sum_of_rows(1, weight);
}

void nll_backward(Emitter& e) {
  const Target target(e, 1, 5);
  Formula slope = -e.in(0);
  if (e.has(3)) slope = slope * e.at(3, 0, target.place);
  if (e.node().args()[4].constant().toInt() == 1) slope = slope.apply(Op::Div, e.in(6));
  // No class is -1.
  const Formula place = select(target.counts, target.index, -1);
  e.out(0, select(equal(e.position(), place), slope, 0));
}

}  // namespace

const Rule index_rules[] = {
    {"aten.embedding", embedding_work, embedding},
    {"aten.index_select", index_select_work, pick},
    {"aten.gather", gather_work, pick},
    {"aten.nll_loss_forward", nll_work, nll},
    {"aten.nll_loss_backward", nll_backward_work, nll_backward},
    {nullptr, nullptr, nullptr},
};

}  // namespace ahead::native
