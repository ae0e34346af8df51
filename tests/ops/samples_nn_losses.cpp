#include "ops/families.h"

namespace ahead::samples::nn_loss_samples {
namespace {

constexpr std::pair<int64_t, const char*> reductions[] = {
    {at::Reduction::None, "none"}, {at::Reduction::Mean, "mean"}, {at::Reduction::Sum, "sum"}};

/// Two tensors of one shape, in several layouts and types.
std::vector<Inputs> pairs(Domain domain = Domain::Any, Dtypes dtypes = floating) {
  const auto in_domain = [&](const Input& x) {
    return domain == Domain::Unit ? x.range(0.1, 0.9) : x;
  };
  std::vector<Inputs> sets;
  const auto add = [&](const Input& x, const Input& y) {
    sets.push_back({in_domain(x), in_domain(y)});
  };
  for (const Input& x : {f32(2, 3, 2, 4).channels_last(), f32(3, 4).transposed(),
                         f32(3, 4).strided(), f32(3, 4).expanded(), f32(), f32(0, 3)}) {
    add(x, x);
  }
  for (at::ScalarType dtype : dtypes.list()) add(tensor(dtype, 3, 4), tensor(dtype, 3, 4));
  add(f32(3, 4).transposed(), f32(3, 4));
  add(f32(3, 4), f32(3, 4).transposed());
  return sets;
}

/// Pairs, and two tensors of which one is broadcast.
std::vector<Inputs> broadcasting_pairs() {
  std::vector<Inputs> sets = pairs();
  sets.push_back({f32(3, 4), f32(4)});
  sets.push_back({f32(4), f32(3, 4)});
  sets.push_back({f32(3, 1).transposed(), f32(1, 4)});
  return sets;
}

void add_distances(SampleTable& table, int64_t r, const std::string& label) {
  table.op("aten.mse_loss")
      .over(
          broadcasting_pairs(), [r](auto& x, auto& y) { return at::mse_loss(x, y, r); }, label);
  table.op("aten.l1_loss")
      .over(
          broadcasting_pairs(), [r](auto& x, auto& y) { return at::l1_loss(x, y, r); }, label);
  table.op("aten.smooth_l1_loss")
      .over(
          broadcasting_pairs(), [r](auto& x, auto& y) { return at::smooth_l1_loss(x, y, r, 0.7); },
          label);
  table.op("aten.huber_loss")
      .over(
          broadcasting_pairs(), [r](auto& x, auto& y) { return at::huber_loss(x, y, r, 0.7); },
          label);
  table.op("aten.hinge_embedding_loss")
      .over(
          pairs(), [r](auto& x, auto& y) { return at::hinge_embedding_loss(x, y.sign(), 1, r); },
          label);
  table.op("aten.soft_margin_loss")
      .over(
          pairs(), [r](auto& x, auto& y) { return at::soft_margin_loss(x, y.detach(), r); }, label);
}

void add_likelihoods(SampleTable& table, int64_t r, const std::string& label) {
  table.op("aten.kl_div")
      .over(
          pairs(), [r](auto& x, auto& y) { return at::kl_div(x, y, r, true); }, label + ", log")
      .over(
          pairs(Domain::Unit), [r](auto& x, auto& y) { return at::kl_div(x, y, r); }, label);
  table.op("aten.poisson_nll_loss")
      .over(
          pairs(Domain::Unit),
          [r](auto& x, auto& y) { return at::poisson_nll_loss(x, y, true, true, 1e-8, r); }, label);
  table.op("aten.binary_cross_entropy")
      .over(
          pairs(Domain::Unit),
          [r](auto& x, auto& y) { return at::binary_cross_entropy(x, y, {}, r); }, label)
      .sample(label + ", weight",
              {f32(3, 4).range(0.1, 0.9), f32(3, 4).range(0, 1).no_grad(), f32(3, 4).no_grad()},
              [r](auto& x, auto& y, auto& w) { return at::binary_cross_entropy(x, y, w, r); });
  table.op("aten.binary_cross_entropy_with_logits")
      .over(
          pairs(Domain::Unit),
          [r](auto& x, auto& y) { return at::binary_cross_entropy_with_logits(x, y, {}, {}, r); },
          label)
      .sample(label + ", weights",
              {f32(3, 4), f32(3, 4).range(0, 1).no_grad(), f32(4).no_grad(), f32(4).no_grad()},
              [r](auto& x, auto& y, auto& w, auto& p) {
                return at::binary_cross_entropy_with_logits(x, y, w, p, r);
              });
}

void add_classifications(SampleTable& table, int64_t r, const std::string& label) {
  const auto nll = [r](auto& x, auto& y) { return at::nll_loss(x, y, {}, r); };
  table.op("aten.nll_loss")
      .sample(label, {f32(3, 4), index(4, 3)}, nll)
      .sample(label + ", one", {f32(4), index(4)}, nll)
      .sample(label + ", strided", {f32(3, 4).strided(), index(4, 3).strided()}, nll)
      .sample(label + ", bf16", {bf16(3, 4), index(4, 3)}, nll)
      .sample(label + ", weight, ignored", {f64(3, 4).transposed(), index(4, 3), f64(4).no_grad()},
              [r](auto& x, auto& y, auto& w) { return at::nll_loss(x, y, w, r, 1); });
  const auto nll2d = [r](auto& x, auto& y) { return at::nll_loss2d(x, y, {}, r); };
  table.op("aten.nll_loss2d")
      .sample(label, {f32(2, 3, 4, 2), index(3, 2, 4, 2)}, nll2d)
      .sample(label + ", bf16", {bf16(2, 3, 4, 2), index(3, 2, 4, 2)}, nll2d)
      .sample(label + ", strided", {f32(2, 3, 4, 2).strided(), index(3, 2, 4, 2).strided()}, nll2d)
      .sample(label + ", weight", {f64(2, 3, 4, 2), index(3, 2, 4, 2), f64(3).no_grad()},
              [r](auto& x, auto& y, auto& w) { return at::nll_loss2d(x, y, w, r, 1); });
  const auto entropy = [r](auto& x, auto& y) { return at::cross_entropy_loss(x, y, {}, r); };
  table.op("aten.cross_entropy_loss")
      .sample(label, {f32(3, 4), index(4, 3)}, entropy)
      .sample(label + ", one", {f32(4), index(4)}, entropy)
      .sample(label + ", probabilities", {f32(3, 4), f32(3, 4).range(0, 1)}, entropy)
      .sample(label + ", images", {f64(2, 3, 4, 2), index(3, 2, 4, 2)}, entropy)
      .sample(label + ", channels last", {f32(2, 3, 4, 2).channels_last(), index(3, 2, 4, 2)},
              entropy)
      .sample(label + ", sequence", {f32(2, 3, 4).transposed(), index(3, 2, 4)}, entropy)
      .sample(label + ", bf16", {bf16(3, 4), index(4, 3)}, entropy)
      .sample(
          label + ", smoothing", {f32(3, 4), index(4, 3), f32(4).no_grad()},
          [r](auto& x, auto& y, auto& w) { return at::cross_entropy_loss(x, y, w, r, -100, 0.1); });
}

void add_margins(SampleTable& table, int64_t r, const std::string& label) {
  const auto multi = [r](auto& x, auto& y) { return at::multi_margin_loss(x, y, 1, 1, {}, r); };
  table.op("aten.multi_margin_loss")
      .sample(label, {f32(3, 4), index(4, 3)}, multi)
      .sample(label + ", one", {f32(4), index(4, 1)}, multi)
      .sample(label + ", scalar target", {f32(4), index(4)}, multi)
      .sample(label + ", squared, weight", {f64(3, 4).transposed(), index(4, 3), f64(4).no_grad()},
              [r](auto& x, auto& y, auto& w) { return at::multi_margin_loss(x, y, 2, 0.5, w, r); });
  const auto multilabel = [r](auto& x, auto& y) { return at::multilabel_margin_loss(x, y, r); };
  table.op("aten.multilabel_margin_loss")
      .sample(label, {f32(3, 4), i64(3, 4).range(-1, 4)}, multilabel)
      .sample(label + ", transposed", {f64(3, 4).transposed(), i64(3, 4).range(-1, 4)}, multilabel)
      .sample(label + ", one", {f32(4), i64(4).range(-1, 4)}, multilabel);
  table.op("aten.margin_ranking_loss")
      .over(
          pairs(),
          [r](auto& x, auto& y) { return at::margin_ranking_loss(x, y, y.sign(), 0.1, r); }, label);
  const auto cosine = [r](auto& x, auto& y, auto& t) {
    return at::cosine_embedding_loss(x, y, t.sign(), 0.1, r);
  };
  table.op("aten.cosine_embedding_loss")
      .sample(label, {f32(3, 4), f32(3, 4), f32(3).no_grad()}, cosine)
      .sample(label + ", one", {f64(4), f64(4), f64().no_grad()}, cosine)
      .sample(label + ", transposed", {f32(3, 4).transposed(), f32(3, 4), f32(3).no_grad()},
              cosine);
  const auto triplet = [r](auto& a, auto& p, auto& n) {
    return at::triplet_margin_loss(a, p, n, 1, 2, 1e-6, /*swap=*/true, r);
  };
  table.op("aten.triplet_margin_loss")
      .sample(label, {f32(3, 4), f32(3, 4), f32(3, 4)}, triplet)
      .sample(label + ", f64", {f64(4), f64(4), f64(4)}, triplet)
      .sample(label + ", mixed layouts", {f32(3, 4).transposed(), f32(3, 4), f32(3, 4).strided()},
              triplet);
}

constexpr int64_t ctc_time = 6, ctc_batch = 2, ctc_classes = 5, ctc_labels = 3;

void add_ctc(SampleTable& table) {
  const auto probabilities = [](at::ScalarType dtype) {
    return tensor(dtype, ctc_time, ctc_batch, ctc_classes);
  };
  const auto labels = i64(ctc_batch, ctc_labels).range(1, ctc_classes);
  const auto joined_labels = i64(5).range(1, ctc_classes);
  const auto loss = [](auto& x, auto& y) {
    return at::ctc_loss(x.log_softmax(2), y, at::IntArrayRef{6, 5}, at::IntArrayRef{3, 2});
  };
  table.op("aten.ctc_loss")
      .sample("padded targets", {probabilities(at::kFloat), labels}, loss)
      .sample("joined targets", {probabilities(at::kDouble), joined_labels}, loss)
      .sample("permuted", {probabilities(at::kFloat).permuted(), labels}, loss)
      .sample("not reduced", {probabilities(at::kFloat).transposed(), labels},
              [](auto& x, auto& y) {
                return at::ctc_loss(x.log_softmax(2), y, at::IntArrayRef{6, 6},
                                    at::IntArrayRef{3, 3}, 0, at::Reduction::None, true);
              })
      .reads_values()
      .sample("lengths in tensors",
              {probabilities(at::kFloat), labels, i64(ctc_batch).filled(ctc_time).captured(),
               i64(ctc_batch).filled(ctc_labels).captured()},
              [](auto& x, auto& y, auto& times, auto& counts) {
                return at::ctc_loss(x.log_softmax(2), y, times, counts);
              });
  const auto backward = [](auto& gradient, auto& x, auto& y, auto& times, auto& counts) {
    const at::Tensor log_probabilities = x.log_softmax(2);
    const auto [likelihood, alpha] =
        at::_ctc_loss(log_probabilities, y, at::IntArrayRef{ctc_time, ctc_time},
                      at::IntArrayRef{ctc_labels, ctc_labels});
    return at::_ctc_loss_backward(gradient, log_probabilities, y, times, counts, likelihood, alpha,
                                  0);
  };
  const auto with_lengths = [&](at::ScalarType dtype) {
    return Inputs{tensor(dtype, ctc_batch).no_grad(), probabilities(dtype).no_grad(), labels,
                  i64(ctc_batch).filled(ctc_time), i64(ctc_batch).filled(ctc_labels)};
  };
  table.op("aten._ctc_loss_backward")
      .sample("f32", with_lengths(at::kFloat), backward)
      .sample("f64", with_lengths(at::kDouble), backward)
      .sample("permuted",
              {f32(ctc_batch).no_grad(), probabilities(at::kFloat).permuted().no_grad(), labels,
               i64(ctc_batch).filled(ctc_time), i64(ctc_batch).filled(ctc_labels)},
              backward);
}

}  // namespace

void add(SampleTable& table) {
  for (const auto& [reduction, label] : reductions) {
    add_distances(table, reduction, label);
    add_likelihoods(table, reduction, label);
    add_classifications(table, reduction, label);
    add_margins(table, reduction, label);
  }
  add_ctc(table);
}

}  // namespace ahead::samples::nn_loss_samples
