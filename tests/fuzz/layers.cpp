#include "fuzz/draft.h"
#include "fuzz/prelude.h"

namespace ahead::fuzz {
namespace {

void along(Draft& draft) {
  draft.take_dim(draft.take(both(floating, rank_from(1))));
}

/// A tensor, and two parameters of the size of its last dimension.
void normalized(Draft& draft) {
  const at::Tensor input = draft.take(both(floating, rank_from(1)));
  draft.add(input.size(-1));
  draft.take_or_capture(input.scalar_type(), {input.size(-1)});
  draft.take_or_capture(input.scalar_type(), {input.size(-1)});
}

/// A tensor with channels, weight, bias and running statistics.
void batch(Draft& draft) {
  const at::Tensor input = draft.take(both(floating, rank_from(2, 4)));
  if (input.numel() == input.size(1)) throw NoFit{};
  Input channels;
  channels.dtype = input.scalar_type();
  channels.sizes = {input.size(1)};
  channels.requires_grad = draft.random.chance(0.7);
  draft.capture(channels);
  draft.capture(channels);
  channels.requires_grad = false;
  draft.capture(channels);
  draft.capture(channels);
}

void grouped(Draft& draft) {
  const at::Tensor input = draft.take(both(floating, rank_from(2, 4)));
  draft.add(input.size(1) % 2 == 0 ? 2 : 1);
  draft.take_or_capture(input.scalar_type(), {input.size(1)});
}

Propose convolution(int64_t spatial) {
  return [spatial](Draft& draft) {
    const at::Tensor input = draft.take(both(floating, rank_from(spatial + 2, spatial + 2)));
    Ints sizes = {draft.random.between(1, 3), input.size(1)};
    for (int64_t i = 0; i < spatial; ++i) {
      sizes.push_back(draft.random.between(1, std::min<int64_t>(input.size(i + 2), 3)));
    }
    draft.take_or_capture(input.scalar_type(), sizes);
    draft.take_or_capture(input.scalar_type(), {sizes[0]});
    draft.add(draft.random.between(1, 2));
    draft.add(draft.random.between(0, 1));
  };
}

Propose pooled(int64_t spatial) {
  return [spatial](Draft& draft) {
    const at::Tensor input = draft.take(both(floating, rank_from(spatial + 2, spatial + 2)));
    if (input.size(-1) < 2 || input.size(-2) < 2) throw NoFit{};
    draft.add(draft.random.between(1, 2));
  };
}

void embedded(Draft& draft) {
  draft.take(both(integral, rank_from(0, 2)));
  draft.take_or_capture(draft.random.chance(0.8) ? at::kFloat : at::kDouble, {4, 3});
}

void classified(Draft& draft) {
  const at::Tensor scores = draft.take(both(floating, rank_from(2, 2)));
  const auto fits = [&](const at::Tensor& tensor) {
    return tensor.dim() == 1 && tensor.size(0) == scores.size(0);
  };
  draft.take(both(integral, fits));
}

void compared(Draft& draft) {
  const at::Tensor first = draft.take(both(floating, rank_from(0)));
  draft.take([&](const at::Tensor& tensor) {
    return tensor.scalar_type() == first.scalar_type() && tensor.sizes() == first.sizes();
  });
}

void attended(Draft& draft) {
  const at::Tensor query = draft.take(both(floating, rank_from(3, 4)));
  const auto fits = [&](const at::Tensor& tensor) {
    return tensor.scalar_type() == query.scalar_type() && tensor.sizes() == query.sizes();
  };
  draft.take(fits);
  draft.take(fits);
}

void halves(Draft& draft) {
  const at::Tensor tensor = draft.take(both(floating, rank_from(1)));
  if (tensor.size(draft.take_dim(tensor)) % 2 != 0) throw NoFit{};
}

void slopes(Draft& draft) {
  const at::Tensor input = draft.take(both(floating, rank_from(2)));
  draft.take_or_capture(input.scalar_type(), {input.size(1)});
}

void recurrent(Draft& draft) {
  const at::Tensor input = draft.take(both(floating, rank_from(2, 2)));
  const at::ScalarType dtype = input.scalar_type();
  draft.take_or_capture(dtype, {input.size(0), 2});
  draft.take_or_capture(dtype, {6, input.size(1)});
  draft.take_or_capture(dtype, {6, 2});
}

}  // namespace

Family layer_family() {
  Family f{"layers", 4, {}};
  f.add(along, FUZZ_VALUE(at::softmax(t[0], n[0])));
  f.add(along, FUZZ_VALUE(at::log_softmax(t[0], n[0])));
  f.add(along, FUZZ_VALUE(at::softmax(t[0], n[0], at::kDouble)));
  f.add(normalized, FUZZ_VALUE(at::layer_norm(t[0], {n[0]}, t[1], t[2])));
  f.add(normalized, FUZZ_VALUE(at::layer_norm(t[0], {n[0]})));
  f.add(normalized, FUZZ_VALUE(at::rms_norm(t[0], {n[0]}, t[1])));
  f.add(grouped, FUZZ_VALUE(at::group_norm(t[0], n[0], t[1])));
  f.add(batch, FUZZ_VALUE(at::batch_norm(t[0], t[1], t[2], t[3], t[4], true, 0.1, 1e-5, false)));
  f.add(batch,
        FUZZ_VALUE(at::batch_norm(t[0], t[1], t[2], t[3], t[4].square(), false, 0.1, 1e-5, false)));
  f.add(batch, FUZZ_VALUE(at::batch_norm(t[0], {}, {}, t[3], t[4], true, 0.5, 1e-5, false)));
  f.add(batch, FUZZ_VALUE(at::batch_norm(t[0], t[1], t[2], {}, {}, true, 0.1, 1e-5, false)));
  f.add(convolution(1), FUZZ_VALUE(at::conv1d(t[0], t[1], t[2], n[0], n[1])));
  f.add(convolution(2), FUZZ_VALUE(at::conv2d(t[0], t[1], t[2], n[0], n[1])));
  f.add(convolution(2), FUZZ_VALUE(at::conv2d(t[0], t[1])));
  f.add(pooled(1), FUZZ_VALUE(at::max_pool1d(t[0], 2, n[0])));
  f.add(pooled(2), FUZZ_VALUE(at::max_pool2d(t[0], 2, n[0])));
  f.add(pooled(2), FUZZ_VALUE(at::avg_pool2d(t[0], 2, n[0])));
  f.add(pooled(2), FUZZ_VALUE(at::adaptive_avg_pool2d(t[0], {n[0], 1})));
  f.add(pooled(2), FUZZ_VALUE(at::upsample_nearest2d(t[0], {3, 5})));
  f.add(pooled(2), FUZZ_VALUE(at::upsample_bilinear2d(t[0], {3, 5}, false)));
  f.add(pooled(2), FUZZ_VALUE(at::reflection_pad2d(t[0], {1, 0, 0, n[0] - 1})));
  f.add(embedded, FUZZ_VALUE(at::embedding(t[1], t[0].remainder(4))));
  f.add(classified, FUZZ_VALUE(at::cross_entropy_loss(t[0], indices(t[1], t[0].size(1)))));
  f.add(classified, FUZZ_VALUE(at::nll_loss(t[0], indices(t[1], t[0].size(1)))));
  f.add(compared, FUZZ_VALUE(at::mse_loss(t[0], t[1])));
  f.add(compared, FUZZ_VALUE(at::smooth_l1_loss(t[0], t[1])));
  f.add(compared, FUZZ_VALUE(at::l1_loss(t[0], t[1])));
  f.add(compared, FUZZ_VALUE(at::binary_cross_entropy_with_logits(t[0], at::sigmoid(t[1]))));
  f.add(compared, FUZZ_VALUE(at::cosine_similarity(t[0], t[1], -1)));
  f.add(attended, FUZZ_VALUE(at::scaled_dot_product_attention(t[0], t[1], t[2])));
  f.add(attended, FUZZ_VALUE(at::scaled_dot_product_attention(t[0], t[1], t[2], {}, 0, true)));
  f.add(halves, FUZZ_VALUE(at::glu(t[0], n[0])));
  f.add(slopes, FUZZ_VALUE(at::prelu(t[0], t[1])));
  f.add(recurrent, FUZZ_VALUE(at::gru_cell(t[0], t[1], t[2], t[3])));
  return f;
}

namespace {

void one(Draft& draft) {
  draft.take(both(floating, rank_from(0)));
}

void dropped(Draft& draft) {
  draft.take(both(floating, rank_from(1)));
  draft.add_number({0.5, 0.25, 0.0});
}

void one_with_channels(Draft& draft) {
  draft.take(both(floating, rank_from(3)));
}

void two(Draft& draft) {
  const at::Tensor first = draft.take(floating);
  draft.take(both(floating, broadcasts_with(first)));
}

void size(Draft& draft) {
  draft.add(draft.random.between(1, 5));
}

}  // namespace

Family random_family() {
  Family f{"random", 1.5, {}};
  f.add(dropped, FUZZ_VALUE(at::dropout(t[0], s[0], true)));
  f.add(dropped, FUZZ_VALUE(at::dropout(t[0], s[0], true)));
  f.add(one_with_channels, FUZZ_VALUE(at::feature_dropout(t[0], 0.5, true)));
  f.add(dropped, FUZZ_EFFECT(at::dropout_(t[0], s[0], true)));
  f.add(one, FUZZ_VALUE(drawn_twice(t[0])));
  f.add(one, FUZZ_VALUE(at::rand_like(t[0])));
  f.add(one, FUZZ_VALUE(at::randn_like(t[0])));
  f.add(one, FUZZ_VALUE(at::bernoulli(at::sigmoid(t[0]))));
  f.add(one, FUZZ_VALUE(at::bernoulli(t[0], 0.5)));
  f.add(one, FUZZ_VALUE(at::randint_like(t[0], 5)));
  f.add(one, FUZZ_EFFECT(t[0].bernoulli_(0.5)));
  f.add(one, FUZZ_EFFECT(t[0].uniform_(0, 1)));
  f.add(one, FUZZ_EFFECT(t[0].normal_(0, 1)));
  f.add(two, FUZZ_VALUE(at::normal(t[0], at::square(t[1]))));
  f.add(one, FUZZ_VALUE(at::rrelu(t[0], 0.1, 0.3, true)));
  f.add(one, FUZZ_VALUE(at::rrelu(t[0], 0.1, 0.3, false)));
  f.add(size, FUZZ_VALUE(at::rand({n[0], 2})));
  f.add(size, FUZZ_VALUE(at::randint(0, 4, {n[0]})));
  f.add(size, FUZZ_VALUE(at::randperm(n[0])));
  return f;
}

}  // namespace ahead::fuzz
