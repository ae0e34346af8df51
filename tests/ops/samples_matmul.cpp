#include "ops/families.h"

namespace ahead::samples::matmul_samples {
namespace {

void add_products(SampleTable& table) {
  std::vector<Inputs> mm = {{f32(2, 3).transposed(), f32(3, 4).transposed()},
                            {f32(2, 3).strided(), f32(3, 4).offset()},
                            {f32(2, 3).expanded(), f32(3, 4)},
                            {f32(0, 3), f32(3, 4)},
                            {f32(2, 0), f32(0, 4)},
                            {f32(1, 1), f32(1, 1)}};
  std::vector<Inputs> bmm = {{f32(2, 2, 3).transposed(), f32(2, 3, 4)},
                             {f32(2, 2, 3).permuted(), f32(2, 3, 4).strided()},
                             {f32(0, 2, 3), f32(0, 3, 4)},
                             {f32(2, 2, 0), f32(2, 0, 4)}};
  std::vector<Inputs> mv = {
      {f32(2, 3).transposed(), f32(3)}, {f32(2, 3), f32(3).strided()}, {f32(2, 0), f32(0)}};
  std::vector<Inputs> dot = {{f32(3).strided(), f32(3)}, {f32(0), f32(0)}};
  for (at::ScalarType dtype : numeric.list()) {
    mm.push_back({tensor(dtype, 2, 3), tensor(dtype, 3, 4)});
    bmm.push_back({tensor(dtype, 2, 2, 3), tensor(dtype, 2, 3, 4)});
    mv.push_back({tensor(dtype, 2, 3), tensor(dtype, 3)});
    dot.push_back({tensor(dtype, 3), tensor(dtype, 3)});
  }
  table.op("aten.mm").over(mm, [](auto& x, auto& y) { return at::mm(x, y); });
  table.op("aten.bmm").over(bmm, [](auto& x, auto& y) { return at::bmm(x, y); });
  table.op("aten.mv").over(mv, at::mv);
  table.op("aten.dot").over(dot, at::dot);
  table.op("aten.vdot").over(dot, at::vdot);
  table.op("aten.inner")
      .over(dot, at::inner)
      .over({{f32(2, 3), f32(4, 3)}, {f32(), f32(3)}}, at::inner);
  table.op("aten.outer").over(dot, at::outer).over({{f32(2), f32(4)}}, at::outer);
  table.op("aten.ger").over(dot, at::ger);
  table.op("aten.linalg_vecdot")
      .over({{f32(2, 3), f32(2, 3)},
             {f32(2, 3), f32(3)},
             {c64(3), c64(3)},
             {f64(2, 3).transposed(), f64(2, 3)}},
            [](auto& x, auto& y) { return at::linalg_vecdot(x, y); });
  const std::vector<Inputs> any = {{f32(3), f32(3)},
                                   {f32(2, 3), f32(3)},
                                   {f32(3), f32(3, 2)},
                                   {f32(2, 3), f32(3, 4)},
                                   {f32(2, 2, 3), f32(3, 4)},
                                   {f32(2, 2, 3), f32(2, 3, 4)},
                                   {f32(2, 3), f32(5, 3, 4)},
                                   {f32(5, 1, 2, 3), f32(2, 3, 4)},
                                   {f32(2, 2, 3), f32(3)},
                                   {f32(3), f32(2, 3, 4)},
                                   {f64(2, 3).transposed(), f64(3, 2).transposed()},
                                   {c64(2, 3), c64(3, 4)},
                                   {i64(2, 3), i64(3, 4)},
                                   {bf16(2, 3), bf16(3, 4)},
                                   {f32(0, 3), f32(3, 4)}};
  table.op("aten.matmul").over(any, at::matmul);
  table.op("aten.linalg_matmul").over(any, at::linalg_matmul);
  table.op("aten.kron")
      .over({{f32(2, 3), f32(3, 2)},
             {f32(2), f32(2, 3)},
             {i64(2, 2), f32(2, 2)},
             {c64(2, 2), c64(2, 2)},
             {f32(), f32(2, 2)}},
            at::kron);
  table.op("aten.cross")
      .over({{f32(2, 3), f32(2, 3)},
             {f64(3, 2).transposed(), f64(3, 2)},
             {f32(3), f32(3)},
             {c64(2, 3), c64(2, 3)}},
            [](auto& x, auto& y) { return at::cross(x, y, x.size(0) == 3 ? 0 : 1); });
  table.op("aten.linalg_cross")
      .over({{f32(2, 3), f32(2, 3)},
             {f64(3, 3).transposed(), f64(1, 3)},
             {f32(1, 3), f32(4, 3)},
             {i64(2, 3), i64(2, 3)}},
            [](auto& x, auto& y) { return at::linalg_cross(x, y); });
}

void add_sums_of_products(SampleTable& table) {
  std::vector<Inputs> addmm = {{f32(4), f32(2, 3), f32(3, 4)},
                               {f32(), f32(2, 3), f32(3, 4)},
                               {f32(2, 1), f32(2, 3).transposed(), f32(3, 4).transposed()},
                               {f32(2, 4).transposed(), f32(2, 3), f32(3, 4)},
                               {f32(2, 4), f32(2, 0), f32(0, 4)}};
  std::vector<Inputs> addmv = {{f32(), f32(2, 3), f32(3)},
                               {f32(2).strided(), f32(2, 3).transposed(), f32(3)}};
  std::vector<Inputs> addr = {{f32(), f32(2), f32(3)},
                              {f32(2, 3).transposed(), f32(2), f32(3).strided()}};
  std::vector<Inputs> baddbmm = {
      {f32(4), f32(2, 2, 3), f32(2, 3, 4)},
      {f32(2, 2, 4).permuted(), f32(2, 2, 3).transposed(), f32(2, 3, 4)}};
  std::vector<Inputs> addbmm = {{f32(4), f32(2, 2, 3), f32(2, 3, 4)}};
  for (at::ScalarType dtype : (floating | complex).list()) {
    addmm.push_back({tensor(dtype, 2, 4), tensor(dtype, 2, 3), tensor(dtype, 3, 4)});
    addmv.push_back({tensor(dtype, 2), tensor(dtype, 2, 3), tensor(dtype, 3)});
    addr.push_back({tensor(dtype, 2, 3), tensor(dtype, 2), tensor(dtype, 3)});
    addbmm.push_back({tensor(dtype, 2, 4), tensor(dtype, 2, 2, 3), tensor(dtype, 2, 3, 4)});
    baddbmm.push_back({tensor(dtype, 2, 2, 4), tensor(dtype, 2, 2, 3), tensor(dtype, 2, 3, 4)});
  }
  table.op("aten.addmm")
      .over(addmm, [](auto& b, auto& x, auto& w) { return at::addmm(b, x, w); })
      .over(
          addmm, [](auto& b, auto& x, auto& w) { return at::addmm(b, x, w, 2, 3); },
          "beta 2, alpha 3")
      .over(
          addmm, [](auto& b, auto& x, auto& w) { return at::addmm(b, x, w, 0, 1); }, "beta 0");
  table.op("aten.addmm_")
      .in_place("plain", {f32(2, 4), f32(2, 3), f32(3, 4)},
                [](auto& b, auto& x, auto& w) { return b.addmm_(x, w, 0.5, 2); });
  table.op("aten.addmv")
      .over(addmv, [](auto& b, auto& x, auto& w) { return at::addmv(b, x, w); })
      .over(
          addmv, [](auto& b, auto& x, auto& w) { return at::addmv(b, x, w, 0.5, 2); }, "numbers");
  table.op("aten.addmv_")
      .in_place("plain", {f32(2), f32(2, 3), f32(3)},
                [](auto& b, auto& x, auto& w) { return b.addmv_(x, w); });
  table.op("aten.addr")
      .over(addr, [](auto& b, auto& x, auto& y) { return at::addr(b, x, y); })
      .over(
          addr, [](auto& b, auto& x, auto& y) { return at::addr(b, x, y, 0.5, 2); }, "numbers");
  table.op("aten.addr_")
      .in_place("plain", {f32(2, 3), f32(2), f32(3)},
                [](auto& b, auto& x, auto& y) { return b.addr_(x, y); });
  table.op("aten.baddbmm")
      .over(baddbmm, [](auto& b, auto& x, auto& w) { return at::baddbmm(b, x, w); })
      .over(
          baddbmm, [](auto& b, auto& x, auto& w) { return at::baddbmm(b, x, w, 0.5, 2); },
          "numbers");
  table.op("aten.baddbmm_")
      .in_place("plain", {f32(2, 2, 4), f32(2, 2, 3), f32(2, 3, 4)},
                [](auto& b, auto& x, auto& w) { return b.baddbmm_(x, w); });
  table.op("aten.addbmm")
      .over(addbmm, [](auto& b, auto& x, auto& w) { return at::addbmm(b, x, w); })
      .over(
          addbmm, [](auto& b, auto& x, auto& w) { return at::addbmm(b, x, w, 0.5, 2); }, "numbers");
  table.op("aten.addbmm_")
      .in_place("plain", {f32(2, 4), f32(2, 2, 3), f32(2, 3, 4)},
                [](auto& b, auto& x, auto& w) { return b.addbmm_(x, w); });
  table.op("aten._addmm_activation")
      .not_differentiable()
      .sample("relu", {f32(4), f32(2, 3), f32(3, 4)},
              [](auto& b, auto& x, auto& w) { return at::_addmm_activation(b, x, w); })
      .sample("gelu", {f32(4), f32(2, 3), f32(3, 4)},
              [](auto& b, auto& x, auto& w) { return at::_addmm_activation(b, x, w, 1, 1, true); })
      .sample("double", {f64(4), f64(2, 3), f64(3, 4)},
              [](auto& b, auto& x, auto& w) { return at::_addmm_activation(b, x, w); });
}

void add_compositions(SampleTable& table) {
  table.op("aten.linear")
      .sample("no bias", {f32(2, 3), f32(4, 3)}, [](auto& x, auto& w) { return at::linear(x, w); })
      .sample("bias", {f32(2, 3), f32(4, 3), f32(4)},
              [](auto& x, auto& w, auto& b) { return at::linear(x, w, b); })
      .sample("vector", {f32(3), f32(4, 3), f32(4)},
              [](auto& x, auto& w, auto& b) { return at::linear(x, w, b); })
      .sample("batch", {f32(2, 2, 3), f32(4, 3), f32(4)},
              [](auto& x, auto& w, auto& b) { return at::linear(x, w, b); })
      .sample("batch, permuted", {f32(2, 2, 3).permuted(), f32(4, 3), f32(4)},
              [](auto& x, auto& w, auto& b) { return at::linear(x, w, b); })
      .sample("bfloat16", {bf16(2, 3), bf16(4, 3), bf16(4)},
              [](auto& x, auto& w, auto& b) { return at::linear(x, w, b); })
      .sample("half", {f16(2, 3), f16(4, 3), f16(4)},
              [](auto& x, auto& w, auto& b) { return at::linear(x, w, b); })
      .sample("complex", {c64(2, 3), c64(4, 3)}, [](auto& x, auto& w) { return at::linear(x, w); })
      .sample("captured weight", {f32(2, 3), f32(4, 3).captured(), f32(4).captured()},
              [](auto& x, auto& w, auto& b) { return at::linear(x, w, b); })
      .sample("empty batch", {f32(0, 3), f32(4, 3), f32(4)},
              [](auto& x, auto& w, auto& b) { return at::linear(x, w, b); });
  table.op("aten.bilinear")
      .sample("bias", {f32(2, 3), f32(2, 4), f32(5, 3, 4), f32(5)},
              [](auto& x, auto& y, auto& w, auto& b) { return at::bilinear(x, y, w, b); })
      .sample("no bias", {f64(2, 3), f64(2, 4), f64(5, 3, 4)},
              [](auto& x, auto& y, auto& w) { return at::bilinear(x, y, w); })
      .sample("batch", {f32(2, 2, 3), f32(2, 2, 4), f32(5, 3, 4)},
              [](auto& x, auto& y, auto& w) { return at::bilinear(x, y, w); });
  table.op("aten.tensordot")
      .sample("one", {f32(2, 3), f32(3, 4)},
              [](auto& x, auto& y) { return at::tensordot(x, y, {1}, {0}); })
      .sample("two", {f32(2, 3, 4), f32(4, 3, 5)},
              [](auto& x, auto& y) {
                return at::tensordot(x, y, {1, 2}, {1, 0});
              })
      .sample("none", {f64(2), f64(3)},
              [](auto& x, auto& y) { return at::tensordot(x, y, {}, {}); });
  table.op("aten.einsum")
      .sample("product", {f32(2, 3), f32(3, 4)},
              [](auto& x, auto& y) {
                return at::einsum("ij,jk->ik", {x, y});
              })
      .sample("batch", {f32(2, 2, 3), f32(2, 3, 4)},
              [](auto& x, auto& y) {
                return at::einsum("bij,bjk->bik", {x, y});
              })
      .sample("diagonal", {f32(3, 3)}, [](auto& x) { return at::einsum("ii->i", {x}); })
      .sample("trace", {f32(3, 3)}, [](auto& x) { return at::einsum("ii", {x}); })
      .sample("ellipsis", {f32(2, 5, 3), f32(3)},
              [](auto& x, auto& y) {
                return at::einsum("...i,i->...", {x, y});
              })
      .sample("three", {f32(2, 3), f32(3, 4), f32(4)},
              [](auto& x, auto& y, auto& z) {
                return at::einsum("ij,jk,k->i", {x, y, z});
              })
      .sample("outer", {f64(2), f64(3)},
              [](auto& x, auto& y) {
                return at::einsum("i,j->ij", {x, y});
              })
      .sample("complex", {c64(2, 3), c64(3, 2)}, [](auto& x, auto& y) {
        return at::einsum("ij,ji->", {x, y});
      });
  table.op("aten.chain_matmul")
      .sample("three", {f32(2, 3), f32(3, 4), f32(4, 2)},
              [](auto& x, auto& y, auto& z) {
                return at::chain_matmul({x, y, z});
              })
      .sample("two", {f64(2, 3), f64(3, 4)},
              [](auto& x, auto& y) {
                return at::chain_matmul({x, y});
              })
      .sample("one", {f32(2, 3)}, [](auto& x) { return at::chain_matmul({x}); });
  table.op("aten.linalg_multi_dot")
      .sample("three", {f32(2, 3), f32(3, 4), f32(4, 2)},
              [](auto& x, auto& y, auto& z) {
                return at::linalg_multi_dot({x, y, z});
              })
      .sample("vectors at the ends", {f32(3), f32(3, 4), f32(4)},
              [](auto& x, auto& y, auto& z) {
                return at::linalg_multi_dot({x, y, z});
              })
      .sample("two", {f64(2, 3), f64(3, 4)}, [](auto& x, auto& y) {
        return at::linalg_multi_dot({x, y});
      });
  table.op("aten.matrix_power")
      .sample("3", {f32(3, 3)}, [](auto& x) { return at::matrix_power(x, 3); })
      .sample("0", {f32(3, 3)}, [](auto& x) { return at::matrix_power(x, 0); })
      .sample("-1", {f64(2, 3, 3).spd()}, [](auto& x) { return at::matrix_power(x, -1); });
  table.op("aten.linalg_matrix_power")
      .sample("2", {f32(3, 3)}, [](auto& x) { return at::linalg_matrix_power(x, 2); })
      .sample("5", {c64(3, 3)}, [](auto& x) { return at::linalg_matrix_power(x, 5); })
      .sample("-2", {f64(3, 3).spd()}, [](auto& x) { return at::linalg_matrix_power(x, -2); });
}

}  // namespace

void add(SampleTable& table) {
  add_products(table);
  add_sums_of_products(table);
  add_compositions(table);
}

}  // namespace ahead::samples::matmul_samples
