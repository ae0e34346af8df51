#include "ops/families.h"

// Views of arguments and of intermediates.
namespace ahead::samples::view_samples {
namespace {

enum class Complex : uint8_t { No, Yes };

/// The layouts that views are taken of.
std::vector<Inputs> matrices(Complex with_complex = Complex::Yes) {
  std::vector<Inputs> sets = {{f32(4, 6)},
                              {f32(4, 6).transposed()},
                              {f32(4, 6).strided()},
                              {f32(4, 6).offset()},
                              {f32(4, 6).expanded()},
                              {f64(4, 6)},
                              {bf16(4, 6)},
                              {i64(4, 6)},
                              {b8(4, 6)}};
  if (with_complex == Complex::Yes) sets.push_back({c64(4, 6)});
  return sets;
}

/// Adds the view of an argument, of an intermediate, and a use of the view.
template <class F>
void add_view(SampleTable& table, const char* name, const std::string& label,
              const std::vector<Inputs>& sets, F view) {
  const Fn f = detail::erase(view);
  table.op(name).over(sets, f, label + " of an argument");
  table.op(name).over(
      {sets.front()}, [f](const Tensors& in) { return f({in[0].clone()}); },
      label + " of an intermediate");
  table.op(name).over(
      {sets.front()},
      [f](const Tensors& in) {
        Tensors results;
        for (const at::Tensor& result : f(in)) results.push_back(result * 2);
        return results;
      },
      label + " doubled");
}

void add_shapes(SampleTable& table) {
  add_view(table, "aten.view", "flat",
           {{f32(4, 6)}, {f32(4, 6).offset()}, {i64(4, 6)}, {c64(4, 6)}},
           [](auto& x) { return x.view({-1}); });
  add_view(table, "aten.view", "more dimensions",
           {{f32(4, 6)}, {f32(4, 6).expanded()}, {bf16(4, 6)}}, [](auto& x) {
             return x.view({4, 3, 2});
           });
  add_view(table, "aten.view_as", "", matrices(), [](auto& x) { return x.view_as(x); });
  add_view(table, "aten.reshape", "flat", matrices(), [](auto& x) { return x.reshape({-1}); });
  add_view(table, "aten.reshape", "split", matrices(), [](auto& x) {
    return x.reshape({2, 2, 6});
  });
  add_view(table, "aten.reshape_as", "", matrices(), [](auto& x) {
    return x.reshape_as(at::zeros({6, 4}));
  });
  add_view(table, "aten.flatten", "",
           {{f32(2, 3, 4)}, {f32(2, 3, 4).permuted()}, {f32()}, {f32(0, 3)}},
           [](auto& x) { return x.flatten(); });
  add_view(table, "aten.flatten", "some",
           {{f32(2, 3, 4)}, {f32(2, 3, 4).permuted()}, {f32(2, 3, 2, 2).channels_last()}},
           [](auto& x) { return x.flatten(1, 2); });
  add_view(table, "aten.unflatten", "", matrices(), [](auto& x) {
    return x.unflatten(1, {2, -1});
  });
  add_view(table, "aten.ravel", "", matrices(), [](auto& x) { return x.ravel(); });
  add_view(table, "aten.squeeze", "all", {{f32(1, 3, 1)}, {f32()}, {f32(2, 3)}},
           [](auto& x) { return x.squeeze(); });
  add_view(table, "aten.squeeze", "one", {{f32(1, 3, 1)}, {f32(2, 3)}, {i32(1, 2)}},
           [](auto& x) { return x.squeeze(0); });
  add_view(table, "aten.squeeze", "two", {{f32(1, 3, 1)}, {f32(1, 3, 2)}}, [](auto& x) {
    return x.squeeze(at::IntArrayRef({0, 2}));
  });
  add_view(table, "aten.unsqueeze", "first", matrices(), [](auto& x) { return x.unsqueeze(0); });
  add_view(table, "aten.unsqueeze", "last", {{f32()}, {f32(3)}, {f32(0, 2)}},
           [](auto& x) { return x.unsqueeze(-1); });
  add_view(table, "aten.expand", "", {{f32(1, 3)}, {f32(2, 1).transposed()}, {f32()}, {i64(3)}},
           [](auto& x) {
             return x.expand({4, 2, 3});
           });
  add_view(table, "aten.expand", "keep", {{f32(2, 1)}, {f32(2, 1).strided()}}, [](auto& x) {
    return x.expand({-1, 5});
  });
  add_view(table, "aten.expand_as", "", {{f32(1, 3)}, {f32(3)}, {f32()}}, [](auto& x) {
    return x.expand_as(at::ones({2, 3}));
  });
  add_view(table, "aten.broadcast_to", "", {{f32(1, 3)}, {f32(3)}, {f32()}}, [](auto& x) {
    return at::broadcast_to(x, {2, 3});
  });
  table.op("aten.broadcast_tensors")
      .sample("two", {f32(2, 1), f32(3)},
              [](auto& x, auto& y) {
                return at::broadcast_tensors({x, y});
              })
      .sample("three", {f32(2, 1), i64(3), f64()},
              [](auto& x, auto& y, auto& z) {
                return at::broadcast_tensors({x, y, z});
              })
      .sample("equal", {f32(2, 3), f32(2, 3)}, [](auto& x, auto& y) {
        return at::broadcast_tensors({x, y});
      });
  table.op("aten.meshgrid")
      .sample("ij", {f32(2), f32(3)},
              [](auto& x, auto& y) {
                return at::meshgrid({x, y}, "ij");
              })
      .sample("xy", {f32(2), f32(3)},
              [](auto& x, auto& y) {
                return at::meshgrid({x, y}, "xy");
              })
      .sample("three", {f32(2), f32(), f32(4)}, [](auto& x, auto& y, auto& z) {
        return at::meshgrid({x, y, z}, "ij");
      });
  for (const char* name : {"aten.atleast_1d", "aten.atleast_2d", "aten.atleast_3d"}) {
    const char dims = name[13];
    add_view(table, name, "", {{f32()}, {f32(3)}, {f32(2, 3)}, {f32(2, 3, 4).permuted()}},
             [dims](const at::Tensor& x) {
               return dims == '1'   ? at::atleast_1d(x)
                      : dims == '2' ? at::atleast_2d(x)
                                    : at::atleast_3d(x);
             });
  }
}

void add_orders(SampleTable& table) {
  const std::vector<Inputs> cubes = {{f32(2, 3, 4)},           {f32(2, 3, 4).permuted()},
                                     {f32(2, 3, 4).strided()}, {f16(2, 3, 4)},
                                     {c128(2, 3, 4)},          {f32(2, 0, 4)}};
  add_view(table, "aten.permute", "", cubes, [](auto& x) { return x.permute({2, 0, 1}); });
  add_view(table, "aten.transpose", "", cubes, [](auto& x) { return x.transpose(0, -1); });
  add_view(table, "aten.swapaxes", "", cubes, [](auto& x) { return x.swapaxes(0, 1); });
  add_view(table, "aten.swapdims", "", cubes, [](auto& x) { return x.swapdims(1, 2); });
  add_view(table, "aten.t", "", {{f32(2, 3)}, {f32(3)}, {f32()}, {f32(2, 3).strided()}},
           [](auto& x) { return x.t(); });
  add_view(table, "aten.numpy_T", "", {{f32(2, 3)}, {f64(3, 2)}, {f32(3, 2).transposed()}},
           [](auto& x) { return x.numpy_T(); });
  add_view(table, "aten.mT", "", cubes, [](auto& x) { return x.mT(); });
  add_view(table, "aten.mH", "", cubes, [](auto& x) { return x.mH(); });
  add_view(table, "aten.matrix_H", "", {{f32(2, 3)}, {c64(2, 3)}, {f32(2, 3).transposed()}},
           [](auto& x) { return x.matrix_H(); });
  add_view(table, "aten.adjoint", "", {{f32(2, 3)}, {c64(2, 3)}, {f32(2, 3, 4).permuted()}},
           [](auto& x) { return x.adjoint(); });
  add_view(table, "aten.movedim", "one", cubes, [](auto& x) { return x.movedim(0, 2); });
  add_view(table, "aten.movedim", "two", cubes, [](auto& x) { return x.movedim({0, 1}, {-1, 0}); });
  add_view(table, "aten.moveaxis", "", cubes, [](auto& x) { return x.moveaxis(2, 0); });
}

void add_parts(SampleTable& table) {
  add_view(table, "aten.slice", "step", matrices(), [](auto& x) { return x.slice(1, 1, 6, 2); });
  add_view(table, "aten.slice", "from the end", matrices(),
           [](auto& x) { return x.slice(0, -3, -1); });
  add_view(table, "aten.slice", "beyond the end", matrices(),
           [](auto& x) { return x.slice(0, 2, 100); });
  add_view(table, "aten.slice", "nothing", matrices(), [](auto& x) { return x.slice(0, 2, 2); });
  add_view(table, "aten.select", "first", matrices(), [](auto& x) { return x.select(0, 1); });
  add_view(table, "aten.select", "last", matrices(), [](auto& x) { return x.select(1, -1); });
  add_view(table, "aten.narrow", "", matrices(), [](auto& x) { return x.narrow(1, 2, 3); });
  add_view(table, "aten.diagonal", "", matrices(), [](auto& x) { return x.diagonal(); });
  add_view(table, "aten.diagonal", "off", matrices(), [](auto& x) { return x.diagonal(2); });
  add_view(table, "aten.diagonal", "of a batch", {{f32(2, 3, 3)}, {f32(2, 3, 3).permuted()}},
           [](auto& x) { return x.diagonal(-1, 1, 2); });
  add_view(table, "aten.linalg_diagonal", "", matrices(),
           [](auto& x) { return at::linalg_diagonal(x, 1); });
  add_view(table, "aten.unfold", "overlapping", matrices(),
           [](auto& x) { return x.unfold(1, 3, 2); });
  add_view(table, "aten.unfold", "disjoint", matrices(), [](auto& x) { return x.unfold(0, 2, 2); });
  add_view(table, "aten.as_strided", "", {{f32(4, 6)}, {f64(4, 6)}, {i64(4, 6)}}, [](auto& x) {
    return x.as_strided({2, 3}, {6, 2}, 1);
  });
  add_view(table, "aten.as_strided", "overlapping", {{f32(4, 6)}, {f32(24)}}, [](auto& x) {
    return x.as_strided({3, 3}, {1, 1});
  });
  add_view(table, "aten.split", "size", matrices(), [](auto& x) { return x.split(4, 1); });
  add_view(table, "aten.split", "sizes", matrices(), [](auto& x) { return x.split({1, 2, 3}, 1); });
  add_view(table, "aten.split_with_sizes", "", matrices(), [](auto& x) {
    return x.split_with_sizes({1, 0, 3}, 0);
  });
  add_view(table, "aten.tensor_split", "sections", matrices(),
           [](auto& x) { return x.tensor_split(4, 1); });
  add_view(table, "aten.tensor_split", "indices", matrices(), [](auto& x) {
    return x.tensor_split({1, 4}, 1);
  });
  add_view(table, "aten.hsplit", "", matrices(), [](auto& x) { return x.hsplit(2); });
  add_view(table, "aten.vsplit", "", matrices(), [](auto& x) { return x.vsplit({1, 3}); });
  add_view(table, "aten.dsplit", "", {{f32(2, 3, 4)}, {f32(2, 3, 4).permuted()}, {f64(2, 3, 4)}},
           [](auto& x) { return x.dsplit(2); });
  add_view(table, "aten.chunk", "", matrices(), [](auto& x) { return x.chunk(4, 1); });
  add_view(table, "aten.unsafe_chunk", "", matrices(),
           [](auto& x) { return x.unsafe_chunk(2, 0); });
  add_view(table, "aten.unsafe_split", "", matrices(),
           [](auto& x) { return x.unsafe_split(4, 1); });
  add_view(table, "aten.unsafe_split_with_sizes", "", matrices(), [](auto& x) {
    return x.unsafe_split_with_sizes({1, 5}, 1);
  });
  add_view(table, "aten.unbind", "", matrices(), [](auto& x) { return x.unbind(); });
  add_view(table, "aten.unbind", "last", matrices(), [](auto& x) { return x.unbind(-1); });
  add_view(table, "aten.alias", "", matrices(), [](auto& x) { return at::alias(x); });
  add_view(table, "aten.detach", "", matrices(), [](auto& x) { return x.detach(); });
  table.op("aten.view")
      .sample("as narrower integers", {i32(4, 6)}, [](auto& x) { return x.view(at::kShort); })
      .sample("as integers of the same size", {f32(4, 6)}, [](auto& x) { return x.view(at::kInt); })
      .sample("as wider floats", {f32(4, 6).no_grad()},
              [](auto& x) { return x.view(at::kDouble); });
}

/// Views that do not alias: each has the same argument list as the view it is named after.
void add_copies(SampleTable& table) {
  table.op("aten.view_copy").over(matrices(), [](auto& x) {
    return at::view_copy(x.contiguous(), {2, 12});
  });
  table.op("aten.slice_copy").over(matrices(Complex::No), [](auto& x) {
    return at::slice_copy(x, 1, 0, 5, 2);
  });
  table.op("aten.select_copy").over(matrices(Complex::No), [](auto& x) {
    return at::select_copy(x, 0, 1);
  });
  table.op("aten.diagonal_copy").over(matrices(), [](auto& x) { return at::diagonal_copy(x, 1); });
  table.op("aten.expand_copy").over(matrices(), [](auto& x) {
    return at::expand_copy(x, {2, 4, 6});
  });
  table.op("aten.permute_copy").over(matrices(), [](auto& x) {
    return at::permute_copy(x, {1, 0});
  });
  table.op("aten.transpose_copy").over(matrices(), [](auto& x) {
    return at::transpose_copy(x, 0, 1);
  });
  table.op("aten.t_copy").over(matrices(), [](auto& x) { return at::t_copy(x); });
  table.op("aten.squeeze_copy").over(matrices(), [](auto& x) { return at::squeeze_copy(x); });
  table.op("aten.unsqueeze_copy").over(matrices(), [](auto& x) {
    return at::unsqueeze_copy(x, 1);
  });
  table.op("aten.unfold_copy").over(matrices(), [](auto& x) {
    return at::unfold_copy(x, 1, 2, 2);
  });
  table.op("aten.alias_copy").over(matrices(), [](auto& x) { return at::alias_copy(x); });
  table.op("aten.detach_copy").not_differentiable().over(matrices(), [](auto& x) {
    return at::detach_copy(x);
  });
  table.op("aten.as_strided_copy").over(matrices(), [](auto& x) {
    return at::as_strided_copy(x, {2, 2}, {1, 1});
  });
  table.op("aten.split_copy").over(matrices(), [](auto& x) { return at::split_copy(x, 4, 1); });
  table.op("aten.split_with_sizes_copy").over(matrices(), [](auto& x) {
    return at::split_with_sizes_copy(x, {1, 3}, 0);
  });
  table.op("aten.unbind_copy").over(matrices(), [](auto& x) { return at::unbind_copy(x, 0); });
}

/// Writes into a view, without aliasing: the tensor, what is written, where.
void add_scatters(SampleTable& table) {
  table.op("aten.slice_scatter")
      .sample("plain", {f32(4, 6), f32(2, 6)},
              [](auto& x, auto& y) { return at::slice_scatter(x, y, 0, 1, 3); })
      .sample("step, transposed", {f32(4, 6).transposed(), f32(4, 3)},
              [](auto& x, auto& y) { return at::slice_scatter(x, y, 1, 0, 6, 2); })
      .sample("strided", {f32(4, 6).strided(), f32(4, 1)},
              [](auto& x, auto& y) { return at::slice_scatter(x, y, 1, 5); });
  table.op("aten.select_scatter")
      .sample("plain", {f32(4, 6), f32(6)},
              [](auto& x, auto& y) { return at::select_scatter(x, y, 0, 2); })
      .sample("transposed", {f32(4, 6).transposed(), f32(4)},
              [](auto& x, auto& y) { return at::select_scatter(x, y, 1, -1); })
      .sample("expanded", {f64(4, 6).expanded(), f64(6)},
              [](auto& x, auto& y) { return at::select_scatter(x, y, 0, 1); });
  table.op("aten.diagonal_scatter")
      .sample("plain", {f32(3, 3), f32(3)},
              [](auto& x, auto& y) { return at::diagonal_scatter(x, y); })
      .sample("off, strided", {f32(3, 4).strided(), f32(3)},
              [](auto& x, auto& y) { return at::diagonal_scatter(x, y, 1); })
      .sample("of a batch", {f64(2, 3, 3), f64(2, 3)},
              [](auto& x, auto& y) { return at::diagonal_scatter(x, y, 0, 1, 2); });
  table.op("aten.as_strided_scatter")
      .sample("plain", {f32(3, 4), f32(2, 2)},
              [](auto& x, auto& y) {
                return at::as_strided_scatter(x, y, {2, 2}, {4, 1}, 1);
              })
      .sample("double", {f64(12), f64(3)},
              [](auto& x, auto& y) { return at::as_strided_scatter(x, y, {3}, {2}); })
      .sample("integers", {i64(12), i64(3)},
              [](auto& x, auto& y) { return at::as_strided_scatter(x, y, {3}, {2}, 2); });
}

}  // namespace

void add(SampleTable& table) {
  add_shapes(table);
  add_orders(table);
  add_parts(table);
  add_copies(table);
  add_scatters(table);
}

}  // namespace ahead::samples::view_samples
