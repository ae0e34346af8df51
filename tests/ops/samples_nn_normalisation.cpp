#include "ops/families.h"

namespace ahead::samples::nn_normalisation_samples {
namespace {

using at::Tensor;

void add_layers(SampleTable& table) {
  table.op("aten.layer_norm")
      .sample("affine", {f32(2, 3, 4), f32(4), f32(4)},
              [](auto& x, auto& w, auto& b) { return at::layer_norm(x, {4}, w, b); })
      .sample("two dimensions", {f64(2, 3, 4), f64(3, 4), f64(3, 4)},
              [](auto& x, auto& w, auto& b) {
                return at::layer_norm(x, {3, 4}, w, b);
              })
      .sample("plain", {f32(2, 3)}, [](auto& x) { return at::layer_norm(x, {3}); })
      .sample("transposed", {f32(3, 4).transposed()},
              [](auto& x) { return at::layer_norm(x, {x.size(1)}); })
      .sample("bf16", {bf16(2, 4), bf16(4), bf16(4)},
              [](auto& x, auto& w, auto& b) { return at::layer_norm(x, {4}, w, b); });
  const auto training = [](auto& x, auto& w, auto& b, auto& m, auto& v) {
    Tensor mean = m * 1, var = v * 1;  // statistics that nobody outside sees
    return std::vector<Tensor>{at::batch_norm(x, w, b, mean, var, true, 0.1, 1e-5, false), mean,
                               var};
  };
  const auto evaluation = [](auto& x, auto& w, auto& b, auto& m, auto& v) {
    return at::batch_norm(x, w, b, m, v, /*training=*/false, 0.1, 1e-5, false);
  };
  const auto batch = [](Input x) {
    return Inputs{x, f32(3), f32(3), f32(3).no_grad(), f32(3).positive().no_grad()};
  };
  table.op("aten.batch_norm")
      .sample("training", batch(f32(2, 3, 4, 4)), training)
      .sample("training, channels last", batch(f32(2, 3, 4, 4).channels_last()), training)
      .sample("training, matrix", batch(f32(5, 3)), training)
      .sample("evaluation", batch(f32(2, 3, 4, 4)), evaluation)
      .sample("evaluation, channels last", batch(f32(2, 3, 4, 4).channels_last()), evaluation)
      .sample("without statistics", {f64(4, 3, 2)},
              [](auto& x) { return at::batch_norm(x, {}, {}, {}, {}, true, 0.1, 1e-5, false); });
  table.op("aten.group_norm")
      .sample("affine", {f32(2, 4, 3), f32(4), f32(4)},
              [](auto& x, auto& w, auto& b) { return at::group_norm(x, 2, w, b); })
      .sample("plain", {f64(2, 4, 3, 3)}, [](auto& x) { return at::group_norm(x, 4); })
      .sample("channels last", {f32(2, 4, 3, 3).channels_last(), f32(4), f32(4)},
              [](auto& x, auto& w, auto& b) { return at::group_norm(x, 2, w, b); });
  table.op("aten.instance_norm")
      .sample("plain", {f32(2, 3, 4)},
              [](auto& x) { return at::instance_norm(x, {}, {}, {}, {}, true, 0.1, 1e-5, false); })
      .sample("affine", {f32(2, 3, 4), f32(3), f32(3)},
              [](auto& x, auto& w, auto& b) {
                return at::instance_norm(x, w, b, {}, {}, true, 0.1, 1e-5, false);
              })
      .sample("images", {f64(2, 3, 4, 2)},
              [](auto& x) { return at::instance_norm(x, {}, {}, {}, {}, true, 0.1, 1e-5, false); });
  table.op("aten.rms_norm")
      .sample("plain", {f32(2, 4)}, [](auto& x) { return at::rms_norm(x, {4}); })
      .sample("affine", {f32(2, 3, 4), f32(4)},
              [](auto& x, auto& w) { return at::rms_norm(x, {4}, w, 1e-6); })
      .sample("double", {f64(2, 4), f64(4)},
              [](auto& x, auto& w) { return at::rms_norm(x, {4}, w, 1e-6); });
}

/// An input with three channels, weight, bias, running mean and running variance.
Inputs with_statistics(const Input& x, at::ScalarType dtype) {
  return {x, tensor(dtype, 3), tensor(dtype, 3), tensor(dtype, 3).no_grad(),
          tensor(dtype, 3).positive().no_grad()};
}

std::vector<Inputs> batches() {
  return {with_statistics(f32(2, 3, 4, 4), at::kFloat),
          with_statistics(f32(2, 3, 4, 4).channels_last(), at::kFloat),
          with_statistics(f32(2, 3, 4, 4).permuted(), at::kFloat),
          with_statistics(f32(2, 3, 4, 4).strided(), at::kFloat),
          with_statistics(f32(2, 3, 2, 4, 4).channels_last(), at::kFloat),
          with_statistics(f32(5, 3), at::kFloat),
          with_statistics(f64(5, 3, 2), at::kDouble),
          with_statistics(bf16(2, 3, 4, 4), at::kBFloat16),
          with_statistics(bf16(2, 3, 4, 4), at::kFloat),
          with_statistics(f16(5, 3), at::kFloat)};
}

/// Runs a batch normalisation that updates the statistics it is given; they come back as well.
template <class F>
auto updating(F normalise) {
  return [normalise](auto& x, auto& w, auto& b, auto& m, auto& v) {
    Tensor mean = m.clone(), variance = v.clone();
    const Tensor result = std::get<0>(normalise(x, w, b, mean, variance));
    return Tensors{result, mean, variance};
  };
}

void add_batch_norms(SampleTable& table) {
  table.op("aten.native_batch_norm")
      .over(batches(), updating([](auto& x, auto& w, auto& b, Tensor& m, Tensor& v) {
              return at::native_batch_norm(x, w, b, m, v, true, 0.1, 1e-5);
            }),
            "training")
      .over(
          batches(),
          [](auto& x, auto& w, auto& b, auto& m, auto& v) {
            return std::get<0>(at::native_batch_norm(x, w, b, m, v, false, 0.1, 1e-5));
          },
          "evaluation");
  table.op("aten._native_batch_norm_legit")
      .over(batches(), updating([](auto& x, auto& w, auto& b, Tensor& m, Tensor& v) {
              return at::_native_batch_norm_legit(x, w, b, m, v, true, 0.1, 1e-5);
            }))
      .over(
          batches(),
          [](auto& x, auto& w, auto& b, auto&, auto&) {
            return std::get<0>(at::_native_batch_norm_legit(x, w, b, true, 0.1, 1e-5));
          },
          "no statistics");
  table.op("aten._native_batch_norm_legit_no_training")
      .over(batches(), [](auto& x, auto& w, auto& b, auto& m, auto& v) {
        return std::get<0>(at::_native_batch_norm_legit_no_training(x, w, b, m, v, 0.1, 1e-5));
      });
  table.op("aten._batch_norm_with_update")
      .over(batches(), updating([](auto& x, auto& w, auto& b, Tensor& m, Tensor& v) {
              return at::_batch_norm_with_update(x, w, b, m, v, 0.1, 1e-5);
            }));
  table.op("aten._batch_norm_no_update")
      .over(batches(), [](auto& x, auto& w, auto& b, auto& m, auto& v) {
        return std::get<0>(at::_batch_norm_no_update(x, w, b, m, v, 0.1, 1e-5));
      });
  table.op("aten.batch_norm_update_stats")
      .not_differentiable()
      .over(batches(), [](auto& x, auto&, auto&, auto& m, auto& v) {
        return at::batch_norm_update_stats(x, m.clone(), v.clone(), 0.1);
      });
}

void add_norms_of_groups(SampleTable& table) {
  const auto group = [](auto& x, auto& w, auto& b) { return at::group_norm(x, 2, w, b); };
  table.op("aten.group_norm")
      .over({{f32(2, 4, 3, 3).permuted(), f32(4), f32(4)},
             {f32(2, 4, 3).strided(), f32(4), f32(4)},
             {bf16(2, 4, 3, 3), bf16(4), bf16(4)},
             {bf16(2, 4, 3, 3).channels_last(), f32(4), f32(4)},
             {f32(2, 4, 2, 3, 3).channels_last(), f32(4), f32(4)},
             {f32(0, 4, 3), f32(4), f32(4)}},
            group);
  table.op("aten.instance_norm")
      .over(
          {{f32(2, 3, 4, 2).channels_last(), f32(3), f32(3), f32(3).no_grad(),
            f32(3).positive().no_grad()},
           {f64(2, 3, 4), f64(3), f64(3), f64(3).no_grad(), f64(3).positive().no_grad()}},
          [](auto& x, auto& w, auto& b, auto& m, auto& v) {
            Tensor mean = m.clone(), variance = v.clone();
            const Tensor y = at::instance_norm(x, w, b, mean, variance, true, 0.1, 1e-5, false);
            return Tensors{y, mean, variance};
          },
          "statistics");
}

void add_norms_of_rows(SampleTable& table) {
  const std::vector<Inputs> rows = {{f32(2, 4), f32(4)},
                                    {f32(2, 3, 4).transposed(), f32(4)},
                                    {f32(3, 4).expanded(), f32(4)},
                                    {f64(2, 4), f64(4)},
                                    {bf16(2, 4), bf16(4)},
                                    {f16(2, 4), f16(4)},
                                    {f32(0, 4), f32(4)}};
  table.op("aten.rms_norm").over(rows, [](auto& x, auto& w) {
    return at::rms_norm(x, {4}, w, 1e-6);
  });
  table.op("aten._fused_rms_norm").over(rows, [](auto& x, auto& w) {
    return at::_fused_rms_norm(x, {4}, w, 1e-6);
  });
  table.op("aten.native_layer_norm").over(rows, [](auto& x, auto& w) {
    return std::get<0>(at::native_layer_norm(x, {4}, w, {}, 1e-5));
  });
}

void add_norms_of_weights(SampleTable& table) {
  const std::vector<Inputs> first = {{f32(4, 3), f32(4, 1)},
                                     {f32(4, 3, 2).permuted(), f32(4, 1, 1)},
                                     {f64(4, 3), f64(4, 1)},
                                     {bf16(4, 3), bf16(4, 1)}};
  const std::vector<Inputs> last = {
      {f32(4, 3), f32(1, 3)}, {f32(4, 3).transposed(), f32(1, 3)}, {f64(4, 2, 3), f64(1, 1, 3)}};
  const auto along_first = [](auto& v, auto& g) { return at::_weight_norm(v, g, 0); };
  const auto along_last = [](auto& v, auto& g) { return at::_weight_norm(v, g, v.dim() - 1); };
  table.op("aten._weight_norm")
      .over(first, along_first, "first")
      .over(last, along_last, "last")
      .over(
          {{f32(2, 4, 3), f32(1, 4, 1)}},
          [](auto& v, auto& g) { return at::_weight_norm(v, g, 1); }, "middle");
  table.op("aten._weight_norm_interface")
      .over({{f32(4, 3), f32(4, 1)},
             {f32(4, 3, 2), f32(4, 1, 1)},
             {f64(4, 3), f64(4, 1)},
             {bf16(4, 3), bf16(4, 1)}},
            [](auto& v, auto& g) { return std::get<0>(at::_weight_norm_interface(v, g, 0)); })
      .over(
          {{f32(4, 3), f32(1, 3)}, {f64(4, 2, 3), f64(1, 1, 3)}, {bf16(4, 3), bf16(1, 3)}},
          [](auto& v, auto& g) {
            return std::get<0>(at::_weight_norm_interface(v, g, v.dim() - 1));
          },
          "last");
}

}  // namespace

void add(SampleTable& table) {
  add_layers(table);
  add_batch_norms(table);
  add_norms_of_groups(table);
  add_norms_of_rows(table);
  add_norms_of_weights(table);
}

}  // namespace ahead::samples::nn_normalisation_samples
