#include "ops/families.h"
#include "ops/images.h"

namespace ahead::samples::nn_upsampling_samples {
namespace {

using Sizes = at::OptionalIntArrayRef;
using Factors = std::optional<at::ArrayRef<double>>;
using Nearest = at::Tensor (*)(const at::Tensor&, Sizes, Factors);
using Smooth = at::Tensor (*)(const at::Tensor&, Sizes, bool, Factors);

struct Row {
  const char* name;
  Nearest nearest;  // null: the operator is smooth
  Smooth smooth;
  std::vector<int64_t> spatial, target;
  Dtypes dtypes = floating;
};

const Row rows[] = {
    {"upsample_nearest1d", at::upsample_nearest1d, nullptr, {4}, {7}},
    {"upsample_nearest2d", at::upsample_nearest2d, nullptr, {4, 5}, {7, 3}},
    {"upsample_nearest3d", at::upsample_nearest3d, nullptr, {2, 3, 4}, {3, 5, 2}},
    {"_upsample_nearest_exact1d", at::_upsample_nearest_exact1d, nullptr, {4}, {7}},
    {"_upsample_nearest_exact2d", at::_upsample_nearest_exact2d, nullptr, {4, 5}, {7, 3}},
    {"_upsample_nearest_exact3d", at::_upsample_nearest_exact3d, nullptr, {2, 3, 4}, {3, 5, 2}},
    {"upsample_linear1d", nullptr, at::upsample_linear1d, {4}, {7}},
    {"upsample_bilinear2d", nullptr, at::upsample_bilinear2d, {4, 5}, {7, 3}},
    {"upsample_trilinear3d", nullptr, at::upsample_trilinear3d, {2, 3, 4}, {3, 5, 2}},
    {"upsample_bicubic2d", nullptr, at::upsample_bicubic2d, {4, 5}, {7, 3}},
    {"_upsample_bilinear2d_aa",
     nullptr,
     at::_upsample_bilinear2d_aa,
     {4, 5},
     {7, 3},
     full_floating},
    {"_upsample_bicubic2d_aa", nullptr, at::_upsample_bicubic2d_aa, {4, 5}, {7, 3}, full_floating},
};

void add_nearest(SampleTable& table, const Row& row) {
  const std::string name = std::string("aten.") + row.name;
  table.op(name)
      .over(image_inputs(row.dtypes, row.spatial, Unbatched::No),
            [f = row.nearest, target = row.target](const at::Tensor& x) {
              return f(x, target, std::nullopt);
            })
      .over(
          image_inputs(at::kFloat, row.spatial, Unbatched::No),
          [f = row.nearest, factors = std::vector<double>(row.spatial.size(), 2.0)](
              const at::Tensor& x) { return f(x, std::nullopt, factors); },
          "by factor");
}

void add_smooth(SampleTable& table, const Row& row) {
  const std::string name = std::string("aten.") + row.name;
  for (bool align_corners : {false, true}) {
    table.op(name).over(
        image_inputs(row.dtypes, row.spatial, Unbatched::No),
        [f = row.smooth, target = row.target, align_corners](const at::Tensor& x) {
          return f(x, target, align_corners, std::nullopt);
        },
        align_corners ? "align corners" : "");
  }
  table.op(name).over(
      image_inputs(at::kFloat, row.spatial, Unbatched::No),
      [f = row.smooth, factors = std::vector<double>(row.spatial.size(), 1.6)](
          const at::Tensor& x) { return f(x, std::nullopt, false, factors); },
      "by factor");
}

/// The kernels of the backwards: gradients of the results in every layout.
void add_backwards(SampleTable& table) {
  const auto in_1d = image_inputs(at::kFloat, {7}, Unbatched::No);
  const auto in_2d = image_inputs(at::kFloat, {7, 3}, Unbatched::No);
  const auto in_3d = image_inputs(at::kFloat, {3, 5, 2}, Unbatched::No);
  table.op("aten.upsample_nearest1d_backward").over(in_1d, [](auto& g) {
    return at::upsample_nearest1d_backward(g, {7}, {g.size(0), g.size(1), 4});
  });
  table.op("aten._upsample_nearest_exact1d_backward").over(in_1d, [](auto& g) {
    return at::_upsample_nearest_exact1d_backward(g, {7}, {g.size(0), g.size(1), 4});
  });
  table.op("aten.upsample_linear1d_backward").over(in_1d, [](auto& g) {
    return at::upsample_linear1d_backward(g, {7}, {g.size(0), g.size(1), 4}, false);
  });
  table.op("aten.upsample_nearest2d_backward").over(in_2d, [](auto& g) {
    return at::upsample_nearest2d_backward(g, {7, 3}, {g.size(0), g.size(1), 4, 5});
  });
  table.op("aten._upsample_nearest_exact2d_backward").over(in_2d, [](auto& g) {
    return at::_upsample_nearest_exact2d_backward(g, {7, 3}, {g.size(0), g.size(1), 4, 5});
  });
  table.op("aten.upsample_bilinear2d_backward").over(in_2d, [](auto& g) {
    return at::upsample_bilinear2d_backward(g, {7, 3}, {g.size(0), g.size(1), 4, 5}, false);
  });
  table.op("aten.upsample_bicubic2d_backward").over(in_2d, [](auto& g) {
    return at::upsample_bicubic2d_backward(g, {7, 3}, {g.size(0), g.size(1), 4, 5}, true);
  });
  table.op("aten._upsample_bilinear2d_aa_backward").over(in_2d, [](auto& g) {
    return at::_upsample_bilinear2d_aa_backward(g, {7, 3}, {g.size(0), g.size(1), 4, 5}, false);
  });
  table.op("aten._upsample_bicubic2d_aa_backward").over(in_2d, [](auto& g) {
    return at::_upsample_bicubic2d_aa_backward(g, {7, 3}, {g.size(0), g.size(1), 4, 5}, false);
  });
  table.op("aten.upsample_nearest3d_backward").over(in_3d, [](auto& g) {
    return at::upsample_nearest3d_backward(g, {3, 5, 2}, {g.size(0), g.size(1), 2, 3, 4});
  });
  table.op("aten._upsample_nearest_exact3d_backward").over(in_3d, [](auto& g) {
    return at::_upsample_nearest_exact3d_backward(g, {3, 5, 2}, {g.size(0), g.size(1), 2, 3, 4});
  });
  table.op("aten.upsample_trilinear3d_backward").over(in_3d, [](auto& g) {
    return at::upsample_trilinear3d_backward(g, {3, 5, 2}, {g.size(0), g.size(1), 2, 3, 4}, false);
  });
}

/// Every set of images with a grid whose batch matches.
std::vector<Inputs> with_grids(const std::vector<Inputs>& images, at::ScalarType dtype,
                               const std::vector<int64_t>& target) {
  std::vector<Inputs> sets;
  for (const Inputs& set : images) {
    std::vector<int64_t> sizes = target;
    sizes.insert(sizes.begin(), set[0].make(0).size(0));
    sizes.push_back(static_cast<int64_t>(target.size()));
    sets.push_back({set[0], Input(dtype, sizes).range(-1.2, 1.2)});
  }
  return sets;
}

void add_grid_samplers(SampleTable& table) {
  for (at::ScalarType dtype : {at::kFloat, at::kDouble}) {
    const auto in_2d = with_grids(image_inputs(dtype, {4, 5}, Unbatched::No), dtype, {3, 7});
    const auto in_3d = with_grids(image_inputs(dtype, {2, 4, 5}, Unbatched::No), dtype, {3, 2, 6});
    auto plain = table.op("aten.grid_sampler_2d");
    for (int64_t interpolation : {0, 1, 2}) {
      plain.over(
          in_2d,
          [interpolation](const at::Tensor& x, const at::Tensor& grid) {
            return at::grid_sampler_2d(x, grid, interpolation, 0, false);
          },
          "interpolation " + std::to_string(interpolation));
    }
    table.op("aten.grid_sampler_3d")
        .over(in_3d, [](auto& x, auto& grid) { return at::grid_sampler_3d(x, grid, 0, 1, true); })
        .over(
            in_3d, [](auto& x, auto& grid) { return at::grid_sampler_3d(x, grid, 1, 2, false); },
            "nearest");
    table.op("aten.grid_sampler").over(in_2d, [](auto& x, auto& grid) {
      return at::grid_sampler(x, grid, 0, 0, true);
    });
    if (dtype != at::kFloat) continue;
    table.op("aten._grid_sampler_2d_cpu_fallback").over(in_2d, [](auto& x, auto& grid) {
      return at::_grid_sampler_2d_cpu_fallback(x, grid, 0, 0, false);
    });
  }
  const Input image = f32(2, 3, 4, 5), grid = f32(2, 3, 7, 2).range(-1.2, 1.2);
  const auto sample_2d = [](auto& x, auto& grid) {
    return at::grid_sampler_2d(x, grid, 0, 0, false);
  };
  table.op("aten.grid_sampler_2d")
      .sample("transposed grid", {image, grid.transposed()}, sample_2d)
      .sample("permuted grid", {image.channels_last(), grid.permuted()}, sample_2d)
      .sample("constant image", {image.no_grad(), grid}, sample_2d)
      .sample("constant grid", {image, grid.no_grad()}, sample_2d)
      .sample("no images", {f32(0, 3, 4, 5), f32(0, 3, 7, 2)}, sample_2d);
  table.op("aten.affine_grid_generator")
      .sample("2d", {f32(2, 2, 3)},
              [](auto& theta) {
                return at::affine_grid_generator(theta, {2, 3, 4, 5}, false);
              })
      .sample("strided", {f32(2, 2, 3).strided()},
              [](auto& theta) {
                return at::affine_grid_generator(theta, {2, 3, 4, 5}, true);
              })
      .sample("3d", {f64(2, 3, 4).transposed()}, [](auto& theta) {
        return at::affine_grid_generator(theta, {2, 3, 4, 5, 6}, true);
      });
}

void add_columns(SampleTable& table) {
  table.op("aten.im2col")
      .over(image_inputs(floating, {4, 5}, Unbatched::Yes),
            [](auto& x) {
              return at::im2col(x, {2, 3}, {1, 1}, {1, 0}, {1, 2});
            })
      .sample("dilated", {f32(2, 3, 6, 7)},
              [](auto& x) {
                return at::im2col(x, {2, 2}, {2, 3}, {0, 1}, {2, 1});
              })
      .sample("no images", {f32(0, 3, 4, 5)}, [](auto& x) {
        return at::im2col(x, {2, 2}, {1, 1}, {0, 0}, {1, 1});
      });
  auto fold = [](auto& x) { return at::col2im(x, {5, 6}, {2, 3}, {1, 1}, {0, 0}, {1, 1}); };
  for (at::ScalarType dtype : floating.list()) {
    table.op("aten.col2im").over({{tensor(dtype, 2, 18, 16)}, {tensor(dtype, 18, 16)}}, fold);
  }
  table.op("aten.col2im")
      .over({{f32(2, 18, 16).transposed()},
             {f32(2, 18, 16).permuted()},
             {f32(2, 18, 16).strided()},
             {f32(2, 18, 16).expanded()},
             {f32(18, 16).transposed()},
             {f32(0, 18, 16)}},
            fold);
}

void add_shuffles(SampleTable& table) {
  const std::vector<Inputs> sets{{f32(2, 4, 4, 6)},
                                 {f32(2, 4, 4, 6).channels_last()},
                                 {f32(2, 4, 4, 6).permuted()},
                                 {f32(2, 4, 4, 6).strided()},
                                 {f64(1, 4, 2, 2)},
                                 {bf16(2, 4, 4, 6)}};
  auto shuffle = table.op("aten.pixel_shuffle");
  shuffle.over(sets, [](auto& x) { return at::pixel_shuffle(x, 2); });
  shuffle.sample("one image", {f32(4, 2, 3)}, [](auto& x) { return at::pixel_shuffle(x, 2); });
  auto unshuffle = table.op("aten.pixel_unshuffle");
  unshuffle.over(sets, [](auto& x) { return at::pixel_unshuffle(x, 2); });
  unshuffle.sample("one image", {f32(1, 4, 6)}, [](auto& x) { return at::pixel_unshuffle(x, 2); });
  table.op("aten.channel_shuffle").over(sets, [](auto& x) { return at::channel_shuffle(x, 2); });
  table.op("aten.native_channel_shuffle").not_differentiable().over(sets, [](auto& x) {
    return at::native_channel_shuffle(x, 2);
  });
}

}  // namespace

void add(SampleTable& table) {
  for (const Row& row : rows) {
    if (row.nearest != nullptr) {
      add_nearest(table, row);
    } else {
      add_smooth(table, row);
    }
  }
  add_backwards(table);
  add_grid_samplers(table);
  add_columns(table);
  add_shuffles(table);
}

}  // namespace ahead::samples::nn_upsampling_samples
