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

std::optional<Work> batch_norm_work(const Node& node) {
  const bool is_training = node.args()[5].constant().toBool();
  return is_training ? norm_of_channels(node, 0, 1) : std::nullopt;
}

std::optional<Work> batch_norm_backward_work(const Node& node) {
  const bool is_training = node.args()[7].constant().toBool();
  return is_training ? norm_of_channels(node, 1, 2) : std::nullopt;
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

void layer_norm(Emitter& e) {
  const Formula x = e.in(0), mean = row_mean(e, x), centred = x - mean;
  const Formula scale = rsqrt(row_mean(e, centred * centred) + e.number(4));
  Formula y = centred * scale;
  if (e.has(2)) y = y * e.in(2);
  if (e.has(3)) y = y + e.in(3);
  e.out(0, y);
  e.out(1, mean);
  e.out(2, scale);
}

void layer_norm_backward(Emitter& e) {
  const Formula grad = e.in(0), scale = e.in(4), normal = (e.in(1) - e.in(3)) * scale;
  const Formula inner = e.has(5) ? grad * e.in(5) : grad;
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

void batch_norm(Emitter& e) {
  const Formula x = e.in(0), mean = row_mean(e, x), centred = x - mean;
  const Formula squares = row_sum(centred * centred);
  const Formula variance = squares / e.row_length();
  const Formula scale = rsqrt(variance + e.number(7));
  Formula y = centred * (e.has(1) ? scale * e.in(1) : scale);
  if (e.has(2)) y = y + e.in(2);
  e.out(0, y);
  e.out(1, mean);
  e.out(2, scale);
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
    {"aten.native_layer_norm", layer_norm_work, layer_norm},
    {"aten.native_layer_norm_backward", layer_norm_backward_work, layer_norm_backward},
    {"aten._fused_rms_norm", rms_norm_work, rms_norm},
    {"aten._native_batch_norm_legit_functional", batch_norm_work, batch_norm},
    {"aten.native_batch_norm_backward", batch_norm_backward_work, batch_norm_backward},
    {"aten.var.correction", row_over<1, 3>, variance},
    {"aten.var_mean.correction", row_over<1, 3>, variance_and_mean},
    {"aten.sum", sum_of_all, [](Emitter& e) { e.out_sum(0, e.in(0)); }},
    {"aten.sum.dim_IntList", sum_over<1, 2>, [](Emitter& e) { e.out_sum(0, e.in(0)); }},
    {"aten.mean", sum_of_all, [](Emitter& e) { e.out_sum(0, e.in(0), elements_each(e)); }},
    {"aten.mean.dim", sum_over<1, 2>, [](Emitter& e) { e.out_sum(0, e.in(0), elements_each(e)); }},
    {"aten.amax", row_over<1, 2>, [](Emitter& e) { e.out(0, row_max(e.in(0))); }},
    {"aten.amin", row_over<1, 2>, [](Emitter& e) { e.out(0, e.in(0).apply(Op::RowMin)); }},
    {"aten.mse_loss", loss<2>, mse_loss},
    {nullptr, nullptr, nullptr},
};

}  // namespace ahead::native
