#include "ops/families.h"

// The common operators of linear algebra; matrices are well conditioned, so that results are
// stable.
namespace ahead::samples::linalg_samples {
namespace {

std::vector<Inputs> squares() {
  return {{f32(3, 3).spd()},
          {f64(3, 3).spd()},
          {c64(3, 3).spd()},
          {f32(2, 3, 3).spd()},
          {f64(3, 3).spd().transposed()},
          {f32(0, 3, 3)}};
}
std::vector<Inputs> systems() {
  return {{f32(3, 3).spd(), f32(3, 2)},
          {f64(3, 3).spd(), f64(3, 2)},
          {c64(3, 3).spd(), c64(3, 2)},
          {f32(2, 3, 3).spd(), f32(2, 3, 2)},
          {f64(3, 3).spd().transposed(), f64(3, 2).transposed()}};
}

void add_decompositions(SampleTable& table) {
  table.op("aten.linalg_cholesky")
      .over(squares(), [](auto& x) { return at::linalg_cholesky(x); })
      .over(
          squares(), [](auto& x) { return at::linalg_cholesky(x, true); }, "upper");
  table.op("aten.linalg_cholesky_ex").over(squares(), [](auto& x) {
    return at::linalg_cholesky_ex(x);
  });
  table.op("aten.cholesky").over(squares(), [](auto& x) { return at::cholesky(x); });
  table.op("aten.cholesky_inverse").over(squares(), [](auto& x) {
    return at::cholesky_inverse(x);
  });
  table.op("aten.cholesky_solve").over(systems(), [](auto& a, auto& b) {
    return at::cholesky_solve(b, a);
  });
  table.op("aten.linalg_qr")
      .over(squares(), [](auto& x) { return at::linalg_qr(x); })
      .sample("tall", {f32(4, 2)}, [](auto& x) { return at::linalg_qr(x); });
  table.op("aten.linalg_eigh").over(squares(), [](auto& x) {
    return std::get<0>(at::linalg_eigh(x));
  });
  table.op("aten.linalg_eigvalsh").over(squares(), [](auto& x) { return at::linalg_eigvalsh(x); });
  table.op("aten.linalg_svd")
      .over(squares(), [](auto& x) { return std::get<1>(at::linalg_svd(x, false)); })
      .sample("tall", {f64(4, 2)}, [](auto& x) { return at::linalg_svd(x, false); });
  table.op("aten.linalg_svdvals").over(squares(), [](auto& x) { return at::linalg_svdvals(x); });
  table.op("aten.linalg_lu_factor").over(squares(), [](auto& x) {
    return at::linalg_lu_factor(x);
  });
  table.op("aten.linalg_lu").over(squares(), [](auto& x) { return at::linalg_lu(x); });
}

void add_solutions(SampleTable& table) {
  table.op("aten.linalg_inv").over(squares(), [](auto& x) { return at::linalg_inv(x); });
  table.op("aten.inverse").over(squares(), [](auto& x) { return at::inverse(x); });
  table.op("aten.linalg_inv_ex").over(squares(), [](auto& x) { return at::linalg_inv_ex(x); });
  table.op("aten.linalg_pinv").over(squares(), [](auto& x) { return at::linalg_pinv(x); });
  table.op("aten.linalg_det").over(squares(), [](auto& x) { return at::linalg_det(x); });
  table.op("aten.det").over(squares(), [](auto& x) { return at::det(x); });
  table.op("aten.logdet").over(squares(), [](auto& x) { return at::logdet(x); });
  table.op("aten.linalg_slogdet").over(squares(), [](auto& x) { return at::linalg_slogdet(x); });
  table.op("aten.slogdet").over(squares(), [](auto& x) { return at::slogdet(x); });
  table.op("aten.linalg_solve")
      .over(systems(), [](auto& a, auto& b) { return at::linalg_solve(a, b); })
      .sample("vector", {f32(3, 3).spd(), f32(3)},
              [](auto& a, auto& b) { return at::linalg_solve(a, b); })
      .sample("right", {f32(3, 3).spd(), f32(2, 3)},
              [](auto& a, auto& b) { return at::linalg_solve(a, b, false); });
  table.op("aten.linalg_solve_triangular")
      .over(systems(), [](auto& a, auto& b) { return at::linalg_solve_triangular(a, b, true); })
      .over(
          systems(),
          [](auto& a, auto& b) { return at::linalg_solve_triangular(a, b, false, true, true); },
          "lower, unit");
  table.op("aten.triangular_solve").over(systems(), [](auto& a, auto& b) {
    return std::get<0>(at::triangular_solve(b, a));
  });
  table.op("aten.linalg_matrix_exp").over(squares(), [](auto& x) {
    return at::linalg_matrix_exp(x * 0.1);
  });
  table.op("aten.matrix_exp").over(squares(), [](auto& x) { return at::matrix_exp(x * 0.1); });
  table.op("aten.linalg_householder_product")
      .over({{f32(4, 2), f32(2)}, {f64(4, 3), f64(3)}, {f32(2, 4, 2), f32(2, 2)}},
            [](auto& x, auto& t) { return at::linalg_householder_product(x, t); });
  table.op("aten.linalg_tensorinv")
      .over({{f32(4, 2, 2)}, {f64(4, 2, 2)}, {f64(4, 2, 2).permuted()}},
            [](auto& x) { return at::linalg_tensorinv(x, 1); });
  table
      .op("aten.linalg_cond")

      .over({{f32(3, 3).spd()}, {f64(3, 3).spd()}, {f64(2, 3, 3).spd()}},
            [](auto& x) { return at::linalg_cond(x); });
}

}  // namespace

void add(SampleTable& table) {
  add_decompositions(table);
  add_solutions(table);
}

}  // namespace ahead::samples::linalg_samples
