#include "ops/families.h"

// Operators that programs mostly reach through others, and overloads that take a tensor where a
// number is usual.
namespace ahead::samples::kernel_samples {
namespace {

constexpr Dtypes integers = Dtypes(at::kLong) | at::kInt;

void add_arithmetic(SampleTable& table) {
  table.op("aten._add_relu")
      .not_differentiable()
      .over(binary_inputs(Dtypes(at::kFloat) | at::kLong, Domain::Any, Mixing::None),
            [](auto& x, auto& y) { return at::_add_relu(x, y); })
      .over(
          unary_inputs(Dtypes(at::kFloat)), [](auto& x) { return at::_add_relu(x, 1.5); },
          "number");
  table.op("aten.__lshift__")
      .over(unary_inputs(integers, Domain::Positive), [](auto& x) { return at::__lshift__(x, 2); })
      .over(
          binary_inputs(integers, Domain::Positive, Mixing::None),
          [](auto& x, auto& y) { return at::__lshift__(x, y); }, "tensor");
  table.op("aten.__rshift__")
      .over(unary_inputs(integers, Domain::Positive), [](auto& x) { return at::__rshift__(x, 2); })
      .over(
          binary_inputs(integers, Domain::Positive, Mixing::None),
          [](auto& x, auto& y) { return at::__rshift__(x, y); }, "tensor");
  table.op("aten.remainder")
      .not_differentiable()
      .over(
          unary_inputs(full_floating, Domain::Positive),
          [](auto& x) { return at::remainder(7.5, x); }, "of a number");
  table.op("aten.floor_divide")
      .not_differentiable()
      .over(
          unary_inputs(real), [](auto& x) { return at::floor_divide(x, 2); }, "by a number");
  table.op("aten.ldexp").over(binary_inputs(real, Domain::Unit), [](auto& x, auto& y) {
    return at::ldexp(x, y);
  });
  table.op("aten._aminmax")
      .over({{f32(3, 4).distinct()}, {i64(2, 3).transposed()}},
            [](auto& x) { return at::_aminmax(x.detach()); })
      .over(
          {{f32(3, 4).no_grad()}, {f64(2, 3, 4).permuted().no_grad()}},
          [](auto& x) { return at::_aminmax(x, 1, /*keepdim=*/true); }, "along a dimension");
}

void add_sums(SampleTable& table) {
  const std::vector<Inputs> inputs = {
      {f32(3, 4)}, {f64(2, 3, 4).permuted()}, {bf16(3, 4)}, {c64(3, 4)}, {f32(3, 4).strided()},
      {f32()},     {f32(3, 4).expanded()}};
  table.op("aten.linalg__powsum")
      .not_differentiable()
      .over(inputs, [](auto& x) { return at::linalg__powsum(x, 3); })
      .over(
          {{f32(3, 4)}, {f64(2, 3, 4).permuted()}, {f32(3, 0)}},
          [](auto& x) { return at::linalg__powsum(x, 2, 1, /*keepdim=*/true); },
          "along a dimension")
      .over(
          {{f32(3, 4)}, {bf16(3, 4)}},
          [](auto& x) { return at::linalg__powsum(x, 2, {}, false, at::kDouble); }, "in double");
  table.op("aten._foreach_powsum")
      .not_differentiable()
      .over({{f32(3, 4), f32(2)}, {f64(3, 4).transposed(), f64()}, {bf16(3), bf16(0)}},
            [](auto& x, auto& y) {
              return at::_foreach_powsum(Tensors{x, y}, 2);
            });
  table.op("aten._logcumsumexp")
      .not_differentiable()
      .over(unary_inputs(floating | complex), [](auto& x) { return at::_logcumsumexp(x, 0); });
}

/// Derivatives that are operators of their own.
void add_derivatives(SampleTable& table) {
  table.op("aten.glu_jvp")
      .not_differentiable()
      .over({{f32(2, 3), f32(2, 6), f32(2, 6)},
             {f64(2, 3).transposed(), f64(2, 6).transposed(), f64(2, 6)},
             {f32(2, 3).strided(), f32(2, 6), f32(2, 6).strided()}},
            [](auto& result, auto& x, auto& dx) { return at::glu_jvp(result, x, dx, 1); });
  const auto shares = [](const Input& x) {
    return Inputs{x.range(0.1, 0.9), x.positive(), x.positive()};
  };
  table.op("aten._dirichlet_grad")
      .not_differentiable()
      .over({shares(f32(2, 3)), shares(f64(4)), shares(f32(3, 2).transposed())},
            [](auto& x, auto& alpha, auto& total) { return at::_dirichlet_grad(x, alpha, total); });
}

void add_assertions(SampleTable& table) {
  const std::vector<Inputs> inputs = {{f32(3)}, {f64(2, 3).transposed()}, {i64()}};
  table.op("aten._assert_async")
      .over(inputs,
            [](auto& x) {
              at::_assert_async((x * x).sum().ge(0));
              return x * 2;
            })
      .over(
          inputs,
          [](auto& x) {
            at::_assert_async((x * x).sum().ge(0), "squares are positive");
            return x * 2;
          },
          "message");
  const auto token = [](auto& x) { return at::_make_dep_token(x.options()).zero_(); };
  table.op("aten._make_dep_token").over(inputs, [token](auto& x) { return x + token(x); });
  table.op("aten._functional_assert_async").over(inputs, [token](auto& x) {
    return at::_functional_assert_async((x * x).sum().ge(0), "squares are positive", token(x));
  });
}

void add_products(SampleTable& table) {
  const auto bytes = [](int64_t rows, int64_t columns) {
    return tensor(at::kChar, rows, columns).range(-5, 5);
  };
  table.op("aten._int_mm")
      .over({{bytes(17, 8), bytes(8, 16)},
             {bytes(17, 8).transposed(), bytes(8, 16).transposed()},
             {bytes(32, 16).strided(), bytes(16, 8)}},
            [](auto& x, auto& y) { return at::_int_mm(x, y); });
  table.op("aten._compute_linear_combination")
      .over({{f32(4, 3, 3).no_grad(), f32(2, 4).no_grad()},
             {f64(4, 3, 3).permuted().no_grad(), f64(2, 4).transposed().no_grad()},
             {c64(4, 2, 3, 3).no_grad(), c64(2, 4).no_grad()}},
            [](auto& x, auto& weights) { return at::_compute_linear_combination(x, weights); });
  table.op("aten._grouped_mm")
      .over({{bf16(2, 8, 16).no_grad(), bf16(2, 16, 8).no_grad()},
             {bf16(2, 8, 16).no_grad(), bf16(2, 16, 8).transposed().no_grad()},
             {bf16(3, 8, 16).no_grad(), bf16(3, 16, 24).no_grad()}},
            [](auto& x, auto& y) { return at::_grouped_mm(x, y); });
  table.op("aten._cholesky_solve_helper")
      .over({{f64(3, 3).spd().no_grad(), f64(3, 2).no_grad()},
             {f32(2, 3, 3).spd().no_grad(), f32(2, 3, 2).no_grad()},
             {c128(3, 3).spd().no_grad(), c128(3, 2).transposed().no_grad()}},
            [](auto& a, auto& b) { return at::_cholesky_solve_helper(b, a, /*upper=*/false); });
  table.op("aten._euclidean_dist")
      .over({{f32(4, 3), f32(5, 3).transposed()},
             {f64(2, 4, 3), f64(2, 5, 3).permuted()},
             {f32(4, 3).strided(), f32(1, 3)}},
            [](auto& x, auto& y) { return at::_euclidean_dist(x, y); });
}

void add_decompositions(SampleTable& table) {
  const std::vector<Inputs> squares = {{f64(3, 3).spd()}, {f32(2, 3, 3).spd()}, {c128(3, 3).spd()}};
  table.op("aten.linalg_eig")
      .skip(Check::Gradients, "eigenvectors are free up to a phase")
      .over(squares, [](auto& x) { return std::get<0>(at::linalg_eig(x)); });
  const std::vector<Inputs> constant_squares = {
      {f64(3, 3).no_grad()}, {f32(2, 3, 3).no_grad()}, {c128(3, 3).transposed().no_grad()}};
  table.op("aten._linalg_eigvals").over(constant_squares, [](auto& x) {
    return at::_linalg_eigvals(x);
  });
  table.op("aten.linalg_eigvals").over(squares, [](auto& x) { return at::linalg_eigvals(x); });
  const std::vector<Inputs> systems = {{f64(4, 3), f64(4, 2)},
                                       {f32(2, 4, 3), f32(2, 4, 2)},
                                       {f64(3, 3).spd(), f64(3, 2).transposed()}};
  table.op("aten.linalg_lstsq")
      .rounds("LAPACK's least squares differ with where in memory the operands lie")
      .over(systems, [](auto& a, auto& b) { return std::get<0>(at::linalg_lstsq(a, b)); });
  table.op("aten.linalg_lstsq")
      .skip(Check::Gradients, "the rank and the singular values it returns have none")
      .sample("gels", {f64(4, 3), f64(4, 2)},
              [](auto& a, auto& b) { return at::linalg_lstsq(a, b, std::nullopt, "gels"); });
  table.op("aten.geqrf")
      .not_differentiable()
      .over({{f64(4, 3)}, {f32(2, 3, 4)}, {c64(3, 3)}}, [](auto& x) { return at::geqrf(x); });
  table.op("aten.ormqr")
      .not_differentiable()
      .over({{f64(4, 3), f64(4, 2)}, {c64(4, 3), c64(4, 2).transposed()}},
            [](auto& x, auto& other) {
              auto [a, tau] = at::geqrf(x);
              return at::ormqr(a, tau, other);
            })
      .sample("right, transposed", {f64(4, 3), f64(2, 4)}, [](auto& x, auto& other) {
        auto [a, tau] = at::geqrf(x);
        return at::ormqr(a, tau, other, /*left=*/false, /*transpose=*/true);
      });
}

void add_factories(SampleTable& table) {
  const Inputs ends = {f32().no_grad(), f64().no_grad()};
  table.op("aten.linspace")
      .sample("tensors", ends, [](auto& a, auto& b) { return at::linspace(a, b, 5); })
      .sample("tensor to number", {f32().no_grad()}, [](auto& a) { return at::linspace(a, 3, 5); })
      .sample("number to tensor", {f32().no_grad()}, [](auto& b) { return at::linspace(0, b, 5); });
  table.op("aten.logspace")
      .sample("tensors", ends, [](auto& a, auto& b) { return at::logspace(a, b, 5); })
      .sample("tensor to number", {f32().no_grad()}, [](auto& a) { return at::logspace(a, 1, 5); })
      .sample("number to tensor", {f32().no_grad()}, [](auto& b) { return at::logspace(0, b, 5); });
  table.op("aten.randint_like")
      .random()
      .sample("tensor bound", {f32(3, 4).transposed().no_grad(), i64().filled(5)},
              [](auto& x, auto& high) { return at::randint_like(x, high); });
}

void add_lists(SampleTable& table) {
  table.op("aten._foreach_addcmul")
      .not_differentiable()
      .sample("tensor of scalars", {f32(3, 4), f32(3, 4).transposed(), f32(2).no_grad()},
              [](auto& x, auto& y, auto& scalars) {
                const Tensors a = {x, y}, b = {y, x};
                return at::_foreach_addcmul(a, a, b, scalars);
              });
  table.op("aten._foreach_abs")
      .sample("mixed", {f32(3, 4).transposed(), c64(2, 3)}, [](auto& x, auto& y) {
        return at::_foreach_abs(Tensors{x, y});
      });
}

}  // namespace

void add(SampleTable& table) {
  add_arithmetic(table);
  add_sums(table);
  add_derivatives(table);
  add_assertions(table);
  add_products(table);
  add_decompositions(table);
  add_factories(table);
  add_lists(table);
}

}  // namespace ahead::samples::kernel_samples
