#include "ops/families.h"
#include "ops/images.h"

namespace ahead::samples::nn_padding_samples {
namespace {

using Pad = at::Tensor (*)(const at::Tensor&, at::IntArrayRef);
using PadBackward = at::Tensor (*)(const at::Tensor&, const at::Tensor&, at::IntArrayRef);

struct Row {
  const char* name;
  Pad pad;
  PadBackward backward;
  std::vector<int64_t> spatial, padding;
};

const Row rows[] = {
    {"reflection_pad1d", at::reflection_pad1d, at::reflection_pad1d_backward, {6}, {2, 1}},
    {"reflection_pad2d", at::reflection_pad2d, at::reflection_pad2d_backward, {4, 5}, {2, 1, 1, 3}},
    {"reflection_pad3d",
     at::reflection_pad3d,
     at::reflection_pad3d_backward,
     {3, 4, 5},
     {1, 2, 0, 3, 2, 1}},
    {"replication_pad1d", at::replication_pad1d, at::replication_pad1d_backward, {4}, {2, 5}},
    {"replication_pad2d",
     at::replication_pad2d,
     at::replication_pad2d_backward,
     {4, 3},
     {2, 1, 5, 0}},
    {"replication_pad3d",
     at::replication_pad3d,
     at::replication_pad3d_backward,
     {2, 4, 3},
     {1, 2, 0, 3, 2, 1}},
};

/// The kernels of the backwards, called with a gradient in another layout than the image.
void add_backward(SampleTable& table, const Row& row) {
  std::vector<int64_t> padded = row.spatial;
  for (size_t i = 0; i < row.padding.size(); ++i) *(padded.rbegin() + i / 2) += row.padding[i];
  const auto inputs = [&](std::vector<int64_t> leading) {
    std::vector<int64_t> image = leading;
    image.insert(image.end(), row.spatial.begin(), row.spatial.end());
    leading.insert(leading.end(), padded.begin(), padded.end());
    return Inputs{Input(at::kFloat, leading), Input(at::kFloat, image).no_grad()};
  };
  const Inputs batched = inputs({2, 3}), single = inputs({3});
  std::vector<Inputs> sets{
      batched, single, {batched[0].permuted(), batched[1]}, {batched[0], batched[1].permuted()}};
  if (row.spatial.size() > 1) {
    sets.push_back({batched[0].channels_last(), batched[1]});
    sets.push_back({batched[0], batched[1].channels_last()});
  }
  table.op(std::string("aten.") + row.name + "_backward")
      .over(sets, [f = row.backward, padding = row.padding](
                      const at::Tensor& grad, const at::Tensor& x) { return f(grad, x, padding); });
}

void add_general(SampleTable& table) {
  table.op("aten.constant_pad_nd")
      .over(image_inputs(numeric, {4, 3}, Unbatched::Yes),
            [](auto& x) {
              return at::constant_pad_nd(x, {1, 2, 0, 3}, 1.5);
            })
      .over(
          image_inputs(at::kFloat, {4, 3}, Unbatched::Yes),
          [](auto& x) {
            return at::constant_pad_nd(x, {-1, 2, 1, -2});
          },
          "cropped")
      .sample("one dimension", {f32(5)},
              [](auto& x) {
                return at::constant_pad_nd(x, {2, 1});
              })
      .sample("nothing", {f32(2, 3).transposed()},
              [](auto& x) {
                return at::constant_pad_nd(x, {0, 0});
              })
      .sample("empty", {f32(0, 3)}, [](auto& x) {
        return at::constant_pad_nd(x, {1, 1, 1, 1});
      });
  table.op("aten.pad")
      .over(
          image_inputs(full_floating, {4, 5}, Unbatched::Yes),
          [](auto& x) {
            return at::pad(x, {1, 2, 3, 0}, "reflect");
          },
          "reflect")
      .over(
          image_inputs(full_floating, {4, 5}, Unbatched::Yes),
          [](auto& x) {
            return at::pad(x, {1, 2, 3, 0}, "replicate");
          },
          "replicate")
      .over(
          image_inputs(full_floating, {4, 5}, Unbatched::Yes),
          [](auto& x) {
            return at::pad(x, {1, 2, 3, 0}, "circular");
          },
          "circular")
      .over(
          image_inputs(full_floating, {4, 5}, Unbatched::Yes),
          [](auto& x) {
            return at::pad(x, {1, 2, 3, 0}, "constant", 2.0);
          },
          "constant");
}

}  // namespace

void add(SampleTable& table) {
  for (const Row& row : rows) {
    table.op(std::string("aten.") + row.name)
        .over(image_inputs(floating, row.spatial, Unbatched::Yes),
              [f = row.pad, padding = row.padding](const at::Tensor& x) { return f(x, padding); });
    add_backward(table, row);
  }
  table.op("aten.reflection_pad2d")
      .sample("no images", {f32(0, 3, 4, 5)},
              [](auto& x) {
                return at::reflection_pad2d(x, {1, 1, 1, 1});
              })
      .sample("no images, channels last", {f32(0, 3, 4, 5).channels_last()},
              [](auto& x) {
                return at::reflection_pad2d(x, {1, 1, 1, 1});
              })
      .sample("cropped", {f32(2, 3, 4, 5)}, [](auto& x) {
        return at::reflection_pad2d(x, {-1, 2, 1, -2});
      });
  add_general(table);
}

}  // namespace ahead::samples::nn_padding_samples
