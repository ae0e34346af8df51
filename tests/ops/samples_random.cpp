#include "ops/families.h"

// Operators that draw from the default generator. Every run starts from the same seed.
namespace ahead::samples::random_samples {
namespace {

void add_dropouts(SampleTable& table) {
  table.op("aten.dropout")
      .random()
      .over(
          unary_inputs(floating), [](auto& x) { return at::dropout(x, 0.4, true); }, "training")
      .over(
          unary_inputs(floating), [](auto& x) { return at::dropout(x, 0.4, false); }, "inference")
      .sample("none", {f32(5)}, [](auto& x) { return at::dropout(x, 0, true); })
      .sample("all", {f32(5)}, [](auto& x) { return at::dropout(x, 1, true); })
      .sample("two in a row", {f32(5)},
              [](auto& x) { return at::dropout(at::dropout(x, 0.4, true), 0.2, true); });
  table.op("aten.dropout_").random().in_place("training", {f32(2, 5)}, [](auto& x) {
    return at::dropout_(const_cast<at::Tensor&>(x), 0.4, true);
  });
  table.op("aten.native_dropout")
      .random()
      .over(
          unary_inputs(floating), [](auto& x) { return at::native_dropout(x, 0.4, true); },
          "training")
      .over(
          unary_inputs(floating), [](auto& x) { return at::native_dropout(x, 0.4, false); },
          "inference");
  table.op("aten.alpha_dropout").random().over(unary_inputs(floating), [](auto& x) {
    return at::alpha_dropout(x, 0.4, true);
  });
  table.op("aten.feature_dropout")
      .random()
      .over({{f32(2, 3, 4)}, {f64(2, 3, 4).permuted()}, {f32(2, 3, 2, 2).channels_last()}},
            [](auto& x) { return at::feature_dropout(x, 0.4, true); });
  table.op("aten.feature_alpha_dropout")
      .random()
      .over({{f32(2, 3, 4)}, {f64(2, 3, 4).permuted()}, {f32(2, 3, 2, 2).channels_last()}},
            [](auto& x) { return at::feature_alpha_dropout(x, 0.4, true); });
  const Dtypes no_f16 = floating - Dtypes(at::kHalf);
  table.op("aten.rrelu")
      .random()
      .over(
          unary_inputs(no_f16), [](auto& x) { return at::rrelu(x, 0.1, 0.3, true); }, "training")
      .over(
          unary_inputs(no_f16), [](auto& x) { return at::rrelu(x, 0.1, 0.3, false); }, "inference");
  table.op("aten.rrelu_with_noise").random().over(unary_inputs(no_f16), [](auto& x) {
    at::Tensor noise = at::zeros_like(x);
    return at::rrelu_with_noise(x, noise, 0.1, 0.3, true);
  });
  table.op("aten.bernoulli")
      .random()
      .over(unary_inputs(floating, Domain::Unit), [](auto& x) { return at::bernoulli(x); })
      .not_differentiable()
      .over(
          unary_inputs(floating), [](auto& x) { return at::bernoulli(x, 0.3); }, "number");
}

void add_draws(SampleTable& table) {
  table.op("aten.rand_like").random().over(unary_inputs(floating | complex), [](auto& x) {
    return x + at::rand_like(x);
  });
  table.op("aten.randn_like").random().over(unary_inputs(floating | complex), [](auto& x) {
    return x + at::randn_like(x);
  });
  table.op("aten.randint_like")
      .random()
      .over(unary_inputs(integral), [](auto& x) { return at::randint_like(x, 5); })
      .sample("low and high", {i64(3)}, [](auto& x) { return at::randint_like(x, 2, 5); });
  table.op("aten.rand")
      .random()
      .sample("plain", {f32(2, 3)},
              [](auto& x) {
                return x + at::rand({2, 3});
              })
      .sample("double", {f64(3)}, [](auto& x) { return x + at::rand({3}, at::kDouble); })
      .sample("half", {f16(3)}, [](auto& x) { return x + at::rand({3}, at::kHalf); });
  table.op("aten.randn")
      .random()
      .sample("plain", {f32(2, 3)},
              [](auto& x) {
                return x * at::randn({2, 3});
              })
      .sample("complex", {c64(3)}, [](auto& x) { return x * at::randn({3}, at::kComplexFloat); })
      .sample("long enough to be vectorised", {f32(40)},
              [](auto& x) { return x * at::randn({40}); });
  table.op("aten.randint")
      .random()
      .sample("high", {f32(3)}, [](auto& x) { return x * at::randint(5, {3}); })
      .sample("low and high", {f32(3)}, [](auto& x) { return x * at::randint(2, 5, {3}); })
      .sample("32 bit", {f32(3)}, [](auto& x) { return x * at::randint(2, 5, {3}, at::kInt); });
  table.op("aten.randperm")
      .random()
      .sample("as an index", {f32(5)}, [](auto& x) { return x.index({at::randperm(5)}); })
      .sample("32 bit", {f32(5)}, [](auto& x) { return x * at::randperm(5, at::kInt); })
      .sample("none", {f32(0)}, [](auto& x) { return x * at::randperm(0); });
  table.op("aten.normal")
      .random()
      .sample("mean tensor", {f32(2, 3)}, [](auto& x) { return at::normal(x, 0.5); })
      .sample("deviation tensor", {f32(2, 3).positive()},
              [](auto& x) { return at::normal(1.0, x); })
      .sample("both", {f32(2, 3), f32(2, 3).positive()},
              [](auto& x, auto& y) { return at::normal(x, y); })
      .sample("numbers", {f32(3)}, [](auto& x) { return x + at::normal(0, 1, {3}); });
  table.op("aten.poisson").random().over(unary_inputs(floating, Domain::Positive), [](auto& x) {
    return at::poisson(x);
  });
  table.op("aten.binomial")
      .random()
      .sample("plain", {f32(3).filled(5).no_grad(), f32(3).range(0, 1).no_grad()},
              [](auto& n, auto& p) { return at::binomial(n, p); })
      .sample("double", {f64(2, 3).filled(9).no_grad(), f64(2, 3).range(0, 1).no_grad()},
              [](auto& n, auto& p) { return at::binomial(n, p); })
      .sample("transposed",
              {f32(2, 3).filled(9).transposed().no_grad(), f32(2, 3).range(0, 1).no_grad()},
              [](auto& n, auto& p) { return at::binomial(n, p); });
  table.op("aten.multinomial")
      .random()
      .sample("plain", {f32(5).positive()}, [](auto& x) { return at::multinomial(x, 3); })
      .sample("with replacement", {f32(2, 5).positive()},
              [](auto& x) { return at::multinomial(x, 7, true); })
      .sample("double", {f64(2, 5).positive()}, [](auto& x) { return at::multinomial(x, 2); });
  table.op("aten._standard_gamma")
      .random()
      .over({{f32(2, 3).positive()}, {f64(2, 3).positive()}, {f32(2, 3).positive().transposed()}},
            [](auto& x) { return at::_standard_gamma(x); });
  table.op("aten._sample_dirichlet")
      .random()
      .over({{f32(2, 3).positive().no_grad()},
             {f64(2, 3).positive().no_grad()},
             {f32(2, 3).positive().transposed().no_grad()}},
            [](auto& x) { return at::_sample_dirichlet(x); });
}

/// The overloads that name the generator.
void add_draws_from(SampleTable& table) {
  table.op("aten.randperm").random().sample("default generator", {f32(5)}, [](auto& x) {
    return x.index({at::randperm(5, at::detail::getDefaultCPUGenerator(), at::kLong)});
  });
  table.op("aten.randint_like")
      .random()
      .over(
          {{i64(3, 4), i64().filled(5)}, {f32(3, 4).transposed().no_grad(), i64().filled(5)}},
          [](auto& x, auto& high) {
            return at::randint_like(x, high, at::detail::getDefaultCPUGenerator());
          },
          "default generator");
}

/// The functional and the in-place forms of the fills with random numbers.
void add_fills(SampleTable& table) {
  table.op("aten.uniform_").random().in_place_over(writable_inputs(floating), [](auto& x) {
    return x.uniform_(-1, 2);
  });
  table.op("aten.normal_").random().in_place_over(writable_inputs(floating | complex), [](auto& x) {
    return x.normal_(1, 2);
  });
  table.op("aten.bernoulli_")
      .random()
      .in_place_over(
          writable_inputs(everything - complex), [](auto& x) { return x.bernoulli_(0.3); },
          "number")
      .in_place("tensor", {f32(2, 3), f32(2, 3).range(0, 1).no_grad()},
                [](auto& x, auto& p) { return x.bernoulli_(p); });
  table.op("aten.exponential_").random().in_place_over(writable_inputs(floating), [](auto& x) {
    return x.exponential_(1.5);
  });
  table.op("aten.cauchy_").random().in_place_over(writable_inputs(floating), [](auto& x) {
    return x.cauchy_();
  });
  table.op("aten.geometric_").random().in_place_over(writable_inputs(real), [](auto& x) {
    return x.geometric_(0.3);
  });
  table.op("aten.log_normal_").random().in_place_over(writable_inputs(floating), [](auto& x) {
    return x.log_normal_();
  });
  table.op("aten.random_")
      .random()
      .in_place_over(writable_inputs(real | boolean), [](auto& x) { return x.random_(); })
      .in_place("to", {i64(2, 3)}, [](auto& x) { return x.random_(7); })
      .in_place("from, to", {f32(2, 3)}, [](auto& x) { return x.random_(3, 7); });
  table.op("aten.uniform").random().over(unary_inputs(floating), [](auto& x) {
    return at::uniform(x, -1, 2);
  });
  table.op("aten.exponential").random().over(unary_inputs(floating), [](auto& x) {
    return at::exponential(x);
  });
  table.op("aten.cauchy").random().over(unary_inputs(floating), [](auto& x) {
    return at::cauchy(x);
  });
  table.op("aten.geometric").random().over(unary_inputs(real), [](auto& x) {
    return at::geometric(x, 0.3);
  });
  table.op("aten.log_normal").random().over(unary_inputs(floating), [](auto& x) {
    return at::log_normal(x);
  });
  table.op("aten.random").random().over(unary_inputs(real | boolean), [](auto& x) {
    return at::random(x);
  });
}

}  // namespace

void add(SampleTable& table) {
  add_dropouts(table);
  add_draws(table);
  add_draws_from(table);
  add_fills(table);
}

}  // namespace ahead::samples::random_samples
