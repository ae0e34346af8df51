#include <ATen/ops/binary_cross_entropy.h>
#include <ATen/ops/full.h>

#include <limits>

#include "native/lower/places.h"

namespace ahead::native {
namespace {

bool is_float_result(const Node& node) {
  return is_float(*compute_type(node.result(0)->meta.dtype));
}

/// All dimensions but one, as bits.
uint32_t all_but(size_t num_dims, size_t dim) {
  return ((1u << num_dims) - 1) & ~(1u << dim);
}

bool has_one_element_only(const Work& work, uint32_t dims) {
  for (size_t dim = 0; dim < work.space.size(); ++dim) {
    if ((dims >> dim & 1) != 0 && work.space[dim] != 1) return false;
  }
  return true;
}

// Loops.

/// Along one dimension, which the argument `dim` names; results are like the first operand.
template <size_t dim>
std::optional<Work> along_dim(const Node& node) {
  if (!is_float_result(node)) return std::nullopt;
  auto work = work_over(node, node.args()[0].value()->meta);
  if (!work) return work;
  work->row_dims = dims_in(node.args()[dim], work->space.size());
  if (has_one_element_only(*work, work->row_dims)) return std::nullopt;
  work->results.push_back(place_without(work->space.size(), 0, false));
  return work;
}

/// Over the dimensions that an argument names, which the result lacks or keeps with one element;
/// `kept`: the argument that tells which, 0: there is none.
std::optional<Work> over_dims(const Node& node, const Argument* dims, size_t kept) {
  if (!is_float_result(node) || !node.args()[0].is_value()) return std::nullopt;
  const TensorMeta& meta = node.args()[0].value()->meta;
  if (!is_float(*compute_type(meta.dtype))) return std::nullopt;
  auto work = work_over(node, meta);
  if (!work) return work;
  const size_t rank = work->space.size();
  const uint32_t gone = dims == nullptr ? (1u << rank) - 1 : dims_in(*dims, rank);
  if (has_one_element_only(*work, gone)) return std::nullopt;
  const bool is_kept = kept != 0 && node.args()[kept].constant().toBool();
  for (size_t i = 0; i < node.results().size(); ++i)
    work->results.push_back(place_without(rank, gone, is_kept));
  return work;
}

std::optional<Work> sum_of_all(const Node& node) {
  return over_dims(node, nullptr, 0);
}

template <size_t dims, size_t kept>
std::optional<Work> sum_over(const Node& node) {
  return over_dims(node, &node.args()[dims], kept);
}

/// The same, where the sum along a row is used in that row.
template <size_t dims, size_t kept>
std::optional<Work> row_over(const Node& node) {
  auto work = over_dims(node, &node.args()[dims], kept);
  if (work) work->row_dims = dims_in(node.args()[dims], work->space.size());
  return work;
}

/// The root of the sum of squares. In 16 bits ATen sums up otherwise.
std::optional<Work> euclidean_norm(const Node& node) {
  const at::ScalarType dtype = node.result(0)->meta.dtype;
  const at::Scalar order = node.args()[1].constant().toScalar();
  const bool is_plain = dtype == at::kFloat || dtype == at::kDouble;
  if (!is_plain || node.args()[0].value()->meta.dtype != dtype || order.isComplex() ||
      order.toDouble() != 2)
    return std::nullopt;
  return row_over<2, 3>(node);
}

/// A loss over all elements, unless the argument `reduction` says that it is for each of them.
template <size_t reduction>
std::optional<Work> loss(const Node& node) {
  if (!is_float_result(node)) return std::nullopt;
  auto work = work_over(node, node.args()[0].value()->meta);
  if (!work) return work;
  const bool is_for_each = node.args()[reduction].constant().toInt() == 0;
  const uint32_t all = (1u << work->space.size()) - 1;
  if (!is_for_each && has_one_element_only(*work, all)) return std::nullopt;
  work->results.push_back(place_without(work->space.size(), is_for_each ? 0 : all, false));
  return work;
}

/// The same in float32 or float64, of operands of that dtype.
template <size_t reduction>
std::optional<Work> full_loss(const Node& node) {
  const at::ScalarType dtype = node.result(0)->meta.dtype;
  bool fits = dtype == at::kFloat || dtype == at::kDouble;
  node.for_each_operand([&](const Value* value) { fits = fits && value->meta.dtype == dtype; });
  return fits ? loss<reduction>(node) : std::nullopt;
}

/// A norm over the last dimensions of `input`: the rows are what lies in front of them. Results are
/// like the input, or have an element for each row, or for each column.
enum class Like : uint8_t { Input, Row, Column };

std::optional<Work> norm_over_last(const Node& node, size_t input,
                                   std::initializer_list<Like> results) {
  if (!is_float_result(node)) return std::nullopt;
  auto work = work_over(node, node.args()[input].value()->meta);
  if (!work) return work;
  const size_t rank = work->space.size();
  const size_t normalised = node.args()[input + 1].constant().toIntVector().size();
  const uint32_t front = (1u << (rank - normalised)) - 1;
  work->row_dims = ((1u << rank) - 1) & ~front;
  if (has_one_element_only(*work, work->row_dims)) return std::nullopt;
  for (const Like like : results) {
    work->results.push_back(like == Like::Input ? place_without(rank, 0, false)
                            : like == Like::Row ? place_without(rank, work->row_dims, true)
                                                : place_without(rank, front, false));
  }
  return work;
}

std::optional<Work> layer_norm_work(const Node& node) {
  return norm_over_last(node, 0, {Like::Input, Like::Row, Like::Row});
}

std::optional<Work> layer_norm_backward_work(const Node& node) {
  return norm_over_last(node, 1, {Like::Input, Like::Column, Like::Column});
}

std::optional<Work> rms_norm_work(const Node& node) {
  return norm_over_last(node, 0, {Like::Input, Like::Row});
}

/// A norm of each channel, the second dimension of `input`. All other tensors have an element for
/// each channel, but for the first `full` arguments and results.
std::optional<Work> norm_of_channels(const Node& node, size_t input, size_t full) {
  const TensorMeta& meta = node.args()[input].value()->meta;
  const size_t rank = meta.sizes.size();
  if (!is_float_result(node) || rank < 2) return std::nullopt;
  Work work;
  for (const int64_t size : at::IntArrayRef(meta.sizes)) work.space.push_back(size);
  work.row_dims = all_but(rank, 1);
  if (has_one_element_only(work, work.row_dims) || work.space[1] == 1) return std::nullopt;
  const Work::Place whole = place_without(rank, 0, false), channel = {1};
  for (size_t i = 0; i < node.args().size(); ++i) {
    const bool is_tensor = node.args()[i].is_value();
    work.arguments.push_back(!is_tensor ? Work::Place() : i < full ? whole : channel);
  }
  for (size_t i = 0; i < node.results().size(); ++i)
    work.results.push_back(i == 0 ? whole : channel);
  return work;
}

bool has_tensor(const Node& node, size_t argument) {
  return node.args()[argument].is_value();
}

/// By the statistics of the batch, or by those that were kept; then there are no others to return.
std::optional<Work> batch_norm_work(const Node& node) {
  const bool is_training = node.args()[5].constant().toBool();
  auto work = norm_of_channels(node, 0, 1);
  if (!work || is_training) return work;
  if (!has_tensor(node, 3) || !has_tensor(node, 4)) return std::nullopt;
  work->row_dims = 0;
  work->results.resize(1);
  return work;
}

/// In training it writes to the statistics that it is given.
std::optional<Work> unrecorded_batch_norm_work(const Node& node) {
  const bool is_training = node.args()[5].constant().toBool();
  if (is_training && (has_tensor(node, 3) || has_tensor(node, 4))) return std::nullopt;
  return batch_norm_work(node);
}

std::optional<Work> batch_norm_backward_work(const Node& node) {
  const bool is_training = node.args()[7].constant().toBool();
  return is_training ? norm_of_channels(node, 1, 2) : std::nullopt;
}

/// Norms of groups of the channels of each image: the second dimension of `input`, of which
/// `groups` names the number of groups. Results are like the input, or, if their number is in
/// `by_group`, have an element for each group, or for each channel.
std::optional<Work> norm_of_groups(const Node& node, size_t input, size_t groups,
                                   uint32_t by_group) {
  const TensorMeta& meta = node.args()[input].value()->meta;
  const at::IntArrayRef sizes = meta.sizes;
  if (!is_float_result(node) || sizes.size() < 2) return std::nullopt;
  const int64_t num_groups = node.args()[groups].constant().toInt();
  Work work;
  work.space = {sizes[0], num_groups, sizes[1] / num_groups};
  work.space.append(sizes.begin() + 2, sizes.end());
  work.row_dims = ((1u << work.space.size()) - 1) & ~3u;
  if (has_one_element_only(work, work.row_dims)) return std::nullopt;
  const Work::Follows channels(1, 2);
  Work::Place whole = {0, channels};
  for (size_t dim = 3; dim < work.space.size(); ++dim) whole.push_back(static_cast<int>(dim));
  const Work::Place group = {0, 1};
  for (size_t i = 0; i < node.args().size(); ++i) {
    Work::Place place;
    if (node.args()[i].is_value()) {
      const size_t rank = node.args()[i].value()->meta.sizes.size();
      place = i <= input ? whole : rank == 2 ? group : Work::Place{channels};
    }
    work.arguments.push_back(place);
  }
  for (size_t i = 0; i < node.results().size(); ++i)
    work.results.push_back(i == 0                     ? whole
                           : (by_group >> i & 1) != 0 ? group
                                                      : Work::Place{channels});
  return work;
}

std::optional<Work> group_norm_work(const Node& node) {
  return norm_of_groups(node, 0, 6, 6);
}

std::optional<Work> group_norm_backward_work(const Node& node) {
  return norm_of_groups(node, 1, 8, 0);
}

// Formulas.

void softmax(Emitter& e) {
  const Formula x = e.in(0), grown = exp(x - row_max(x));
  // The sum is at least 1, or not a number.
  e.out(0, grown * (1 / row_sum(grown)));
}

void log_softmax(Emitter& e) {
  const Formula x = e.in(0), most = row_max(x);
  e.out(0, x - most - log(row_sum(exp(x - most))));
}

void softmax_backward(Emitter& e) {
  const Formula grad = e.in(0), result = e.in(1);
  e.out(0, (grad - row_sum(grad * result)) * result);
}

void log_softmax_backward(Emitter& e) {
  const Formula grad = e.in(0);
  e.out(0, grad - exp(e.in(1)) * row_sum(grad));
}

void logsumexp(Emitter& e) {
  const Formula x = e.in(0), most = row_max(x);
  const Formula shift = select(abs(most) < std::numeric_limits<double>::infinity(), most, 0);
  e.out(0, log(row_sum(exp(x - shift))) + shift);
}

/// A quotient, once for a row: the mean of a few equal numbers is that number.
Formula row_mean(Emitter& e, Formula x) {
  const Formula sum = row_sum(x);
  return sum.apply(Op::Div, sum.number(e.row_length()));
}

/// `weight`, `epsilon`: the arguments that have them; the bias follows the weight.
void norm_of_rows(Emitter& e, size_t weight, size_t epsilon) {
  const Formula x = e.in(0), mean = row_mean(e, x), centred = x - mean;
  const Formula scale = rsqrt(row_mean(e, centred * centred) + e.number(epsilon));
  Formula y = centred * scale;
  if (e.has(weight)) y = y * e.in(weight);
  if (e.has(weight + 1)) y = y + e.in(weight + 1);
  e.out(0, y);
  e.out(1, mean);
  e.out(2, scale);
}

/// `mean`: the argument that has it; the scale and the weight are those behind it.
void norm_of_rows_backward(Emitter& e, size_t mean) {
  const Formula grad = e.in(0), scale = e.in(mean + 1), normal = (e.in(1) - e.in(mean)) * scale;
  const Formula inner = e.has(mean + 2) ? grad * e.in(mean + 2) : grad;
  if (e.wants(0)) {
    e.out(0, (inner - row_mean(e, inner) - normal * row_mean(e, inner * normal)) * scale);
  }
  if (e.wants(1)) e.out_sum(1, grad * normal);
  if (e.wants(2)) e.out_sum(2, grad);
}

void rms_norm(Emitter& e) {
  const Formula x = e.in(0);
  const bool is_double = e.node().args()[0].value()->meta.dtype == at::kDouble;
  const double epsilon = e.has(3)    ? e.number(3)
                         : is_double ? std::numeric_limits<double>::epsilon()
                                     : std::numeric_limits<float>::epsilon();
  const Formula scale = rsqrt(row_mean(e, x * x) + epsilon);
  e.out(0, e.has(2) ? x * scale * e.in(2) : x * scale);
  e.out(1, scale);
}

/// By statistics that were kept.
void known_batch_norm(Emitter& e) {
  const Formula scale = rsqrt(e.in(4) + e.number(7));
  const Formula factor = e.has(1) ? scale * e.in(1) : scale;
  const Formula shift = -(e.in(3) * factor);
  e.out(0, e.in(0) * factor + (e.has(2) ? e.in(2) + shift : shift));
}

void batch_norm(Emitter& e) {
  if (!e.flag(5)) return known_batch_norm(e);
  const Formula x = e.in(0), mean = row_mean(e, x), centred = x - mean;
  const Formula squares = row_sum(centred * centred);
  const Formula variance = squares / e.row_length();
  const Formula scale = rsqrt(variance + e.number(7));
  Formula y = centred * (e.has(1) ? scale * e.in(1) : scale);
  if (e.has(2)) y = y + e.in(2);
  e.out(0, y);
  e.out(1, mean);
  e.out(2, scale);
  if (!e.has(3)) return;
  const double momentum = e.number(6);
  e.out(3, mean * momentum + e.in(3) * (1 - momentum));
  e.out(4, squares / (e.row_length() - 1) * momentum + e.in(4) * (1 - momentum));
}

void batch_norm_backward(Emitter& e) {
  const Formula grad = e.in(0), scale = e.in(6), normal = (e.in(1) - e.in(5)) * scale;
  const Formula sum = row_sum(grad), weighted = row_sum(grad * normal);
  if (e.wants(0)) {
    const Formula factor = e.has(2) ? scale * e.in(2) : scale;
    e.out(0, (grad - sum / e.row_length() - normal * (weighted / e.row_length())) * factor);
  }
  if (e.wants(1)) e.out(1, weighted);
  if (e.wants(2)) e.out(2, sum);
}

Formula variance_of(Emitter& e, Formula mean, size_t correction) {
  const Formula centred = e.in(0) - mean;
  const double less = e.has(correction) ? e.number(correction) : 1;
  return row_sum(centred * centred) / std::max(e.row_length() - less, 0.0);
}

void variance(Emitter& e) {
  e.out(0, variance_of(e, row_mean(e, e.in(0)), 2));
}

void variance_and_mean(Emitter& e) {
  const Formula mean = row_mean(e, e.in(0));
  e.out(0, variance_of(e, mean, 2));
  e.out(1, mean);
}

double elements(Emitter& e) {
  return static_cast<double>(e.node().args()[0].value()->meta.numel().fixed());
}

/// The loss of each element, the sum of all, or their mean, as the argument says.
void loss_of(Emitter& e, Formula each, size_t reduction) {
  const int64_t kind = e.node().args()[reduction].constant().toInt();
  if (kind == 0) return e.out(0, each);
  e.out_sum(0, each, kind == 1 ? elements(e) : 1);
}

void mse_loss(Emitter& e) {
  const Formula off = e.in(0) - e.in(1);
  loss_of(e, off * off, 2);
}

void smooth_l1_loss(Emitter& e) {
  const Formula off = abs(e.in(0) - e.in(1));
  const double beta = e.number(3);
  if (beta == 0) return loss_of(e, off, 2);
  loss_of(e, select(off < beta, 0.5 * off * off / beta, off - 0.5 * beta), 2);
}

void huber_loss(Emitter& e) {
  const Formula off = abs(e.in(0) - e.in(1));
  const double delta = e.number(3);
  loss_of(e, select(off <= delta, 0.5 * off * off, delta * (off - 0.5 * delta)), 2);
}

/// What ATen says of numbers that are no probabilities.
void refuse_probability() {
  at::binary_cross_entropy(at::full({1}, 2.f), at::full({1}, 0.f));
}

void bce(Emitter& e) {
  const Formula x = e.in(0), target = e.in(1);
  e.refuse(!((x >= 0) & (x <= 1)), refuse_probability);
  const Formula log_no = maximum(log1p(-x), -100), log_yes = maximum(log(x), -100);
  const Formula each = (target - 1) * log_no - target * log_yes;
  loss_of(e, e.has(2) ? each * e.in(2) : each, 3);
}

void bce_with_logits(Emitter& e) {
  const Formula x = e.in(0), target = e.in(1);
  const Formula log_sigmoid = minimum(x, 0) - log1p(exp(-abs(x)));
  const Formula share = e.has(3) ? (e.in(3) - 1) * target + 1 : x.number(1);
  const Formula each = (1 - target) * x - (e.has(3) ? share * log_sigmoid : log_sigmoid);
  loss_of(e, e.has(2) ? each * e.in(2) : each, 4);
}

/// How many elements are summed up for each of the result's.
double elements_each(Emitter& e) {
  return elements(e) / static_cast<double>(e.node().result(0)->meta.numel().fixed());
}

}  // namespace

const Rule row_rules[] = {
    {"aten._softmax", along_dim<1>, softmax},
    {"aten._log_softmax", along_dim<1>, log_softmax},
    {"aten._softmax_backward_data", along_dim<2>, softmax_backward},
    {"aten._log_softmax_backward_data", along_dim<2>, log_softmax_backward},
    {"aten.logsumexp", row_over<1, 2>, logsumexp},
    {"aten.native_layer_norm", layer_norm_work, [](Emitter& e) { norm_of_rows(e, 2, 4); }},
    {"aten.native_layer_norm_backward", layer_norm_backward_work,
     [](Emitter& e) { norm_of_rows_backward(e, 3); }},
    {"aten.native_group_norm", group_norm_work, [](Emitter& e) { norm_of_rows(e, 1, 7); }},
    {"aten.native_group_norm_backward", group_norm_backward_work,
     [](Emitter& e) { norm_of_rows_backward(e, 2); }},
    {"aten._fused_rms_norm", rms_norm_work, rms_norm},
    {"aten._native_batch_norm_legit_functional", batch_norm_work, batch_norm},
    {"aten.native_batch_norm", unrecorded_batch_norm_work, batch_norm},
    {"aten.native_batch_norm_backward", batch_norm_backward_work, batch_norm_backward},
    {"aten.var.correction", row_over<1, 3>, variance},
    {"aten.var_mean.correction", row_over<1, 3>, variance_and_mean},
    {"aten.sum", sum_of_all, [](Emitter& e) { e.out_sum(0, e.in(0)); }},
    {"aten.sum.dim_IntList", sum_over<1, 2>, [](Emitter& e) { e.out_sum(0, e.in(0)); }},
    {"aten.mean", sum_of_all, [](Emitter& e) { e.out_sum(0, e.in(0), elements_each(e)); }},
    {"aten.mean.dim", sum_over<1, 2>, [](Emitter& e) { e.out_sum(0, e.in(0), elements_each(e)); }},
    {"aten.amax", row_over<1, 2>, [](Emitter& e) { e.out(0, row_max(e.in(0))); }},
    {"aten.amin", row_over<1, 2>, [](Emitter& e) { e.out(0, e.in(0).apply(Op::RowMin)); }},
    {"aten.linalg_vector_norm", euclidean_norm,
     [](Emitter& e) { e.out(0, sqrt(row_sum(e.in(0) * e.in(0)))); }},
    {"aten.mse_loss", loss<2>, mse_loss},
    {"aten.smooth_l1_loss", full_loss<2>, smooth_l1_loss},
    {"aten.huber_loss", full_loss<2>, huber_loss},
    {"aten.binary_cross_entropy", full_loss<3>, bce},
    {"aten.binary_cross_entropy_with_logits", full_loss<4>, bce_with_logits},
    {nullptr, nullptr, nullptr},
};

}  // namespace ahead::native
