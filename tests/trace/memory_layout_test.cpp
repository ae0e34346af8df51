#include <gtest/gtest.h>

#include "support/trace_check.h"

/// Tensors with gaps, tensors that begin in the middle of their storage, and programs that address
/// memory by strides.
namespace ahead {
namespace memory_layout_test {

using at::Tensor;
using Tensors = std::vector<at::Tensor>;

/// Every second element of a larger storage, from the fourth on.
Tensor with_gaps(at::IntArrayRef sizes, at::ScalarType dtype = at::kFloat) {
  const Tensor storage = at::randn({3 + 2 * c10::multiply_integers(sizes)},
                                   at::make_generator<at::CPUGeneratorImpl>(6));
  std::vector<int64_t> strides(sizes.size());
  int64_t stride = 2;
  for (size_t i = sizes.size(); i-- > 0;) {
    strides[i] = stride;
    stride *= sizes[i];
  }
  return storage.to(dtype).as_strided(sizes, strides, 3);
}

TEST(MemoryLayout, TrianglesOfTruthValuesWithGapsAreTruthValues) {
  const auto function = [](const Tensors& in) -> Tensors {
    return {in[0].tril(), in[0].triu(), at::fill(in[0], -1.5)};
  };
  const Graph graph = trace(function, {with_gaps({2, 2}, at::kBool)});
  for (const auto& output : graph.outputs()) EXPECT_EQ(output.value->meta.dtype, at::kBool);
}

TEST(MemoryLayout, BatchNormWhereSizesOfOneLeaveTheLayoutOpen) {
  const Tensor x = at::randn({1, 2, 1, 2}).as_strided({1, 2, 1, 2}, {1, 1, 2, 2});
  const auto function = [](const Tensors& in) -> Tensors {
    return {at::batch_norm(in[0], {}, {}, {}, {}, true, 0.1, 1e-5, false)};
  };
  const Graph graph = trace(function, {x});
  const auto recorded = meaningful(graph.outputs()[0].value->meta);
  EXPECT_EQ(recorded, meaningful(TensorMeta::of(function({x})[0])));
}

TEST(MemoryLayout, RandomNumbersForTensorsWithGaps) {
  expect_like_eager([] {
    const auto function = [](const Tensors& in) -> Tensors {
      in[0].normal_(0, 1);
      in[0].bernoulli_(0.5);
      const Tensor part = (in[1] * 1).select(1, 1);
      return {in[1].slice(0, 0, std::nullopt, 2).clone().normal_(0, 1), part.bernoulli_(0.5),
              part.clone().exponential_(), part.uniform_(0, 1).clone()};
    };
    return Scene{function, {with_gaps({5, 4}), at::zeros({2, 3, 4}).permute({2, 1, 0})}, {}, {}};
  });
}

TEST(MemoryLayout, WrittenTensorsKeepTheirGaps) {
  expect_like_eager([] {
    const auto function = [](const Tensors& in) -> Tensors {
      in[0].square_();
      const Tensor turned = in[0].permute({2, 1, 0});
      turned.sub_(1);
      return {at::atan2(in[0], at::xlogy(in[0], in[0].abs())), turned.relu()};
    };
    return Scene{function, {with_gaps({4, 2, 2}, at::kDouble)}, {}, {}};
  });
}

TEST(MemoryLayout, AddressesMemoryOfWrittenTensors) {
  for (const bool before : {false, true}) {
    expect_like_eager([before] {
      const auto function = [before](const Tensors& in) -> Tensors {
        Tensors results;
        const auto address = [&] {
          for (const Tensor& x : in) {
            results.push_back(x.as_strided({3}, {1}, 1));
            results.push_back(x.view({4, 1}).as_strided({3}, {1}));
          }
        };
        if (before) address();
        for (const Tensor& x : in) x.mul_(2);
        if (!before) address();
        for (Tensor& result : results) result = result * 1;
        return results;
      };
      return Scene{function, {at::arange(9.0).narrow(0, 3, 4), with_gaps({4})}, {}, {}};
    });
  }
}

TEST(MemoryLayout, RefusesToWriteBesideATensor) {
  const auto function = [](const Tensors& in) -> Tensors {
    in[0].as_strided({2}, {1}, 0).mul_(2);
    return {};
  };
  EXPECT_THROW(trace(function, {at::arange(9.0).narrow(0, 3, 4)}), Unsupported);
  EXPECT_THROW(trace(function, {with_gaps({4})}), Unsupported);
}

TEST(MemoryLayout, RefusesToReshapeWhatIsAddressed) {
  const auto function = [](const Tensors& in) -> Tensors {
    in[0].unsqueeze_(-1);
    return {in[0].as_strided({1}, {1})};
  };
  EXPECT_THROW(trace(function, {at::zeros({2})}), Unsupported);
}

TEST(MemoryLayout, RefusesToReachBehindTheMemoryOfATensorFromOutside) {
  const auto reach = [](const Tensors& in) -> Tensors {
    return {in[0].as_strided({2}, {1}, 1) * 1};
  };
  EXPECT_THROW(trace(reach, {at::zeros({})}), Unsupported);
  EXPECT_THROW(trace(reach, {at::zeros({2})}), Unsupported);
  EXPECT_NO_THROW(trace(reach, {at::zeros({3})}));
  EXPECT_NO_THROW(trace(reach, {at::zeros({3}).narrow(0, 1, 1)})) << "its memory is larger";
  const auto after_write = [](const Tensors& in) -> Tensors {
    in[0].mul_(2);
    return {in[0].as_strided({2}, {1}, 4) * 1};
  };
  EXPECT_NO_THROW(trace(after_write, {at::zeros({9}).narrow(0, 3, 4)}));
  EXPECT_THROW(trace(after_write, {at::zeros({5}).narrow(0, 3, 2)}), Unsupported);
}

TEST(MemoryLayout, RefusesToReadBehindTheEndOfWhatWasComputed) {
  const auto behind = [](const Tensors& in) -> Tensors {
    return {at::mse_loss(in[0], in[1]).as_strided({1}, {2}, 1)};
  };
  const Tensor x = at::randn({1, 2}), y = at::randn({1, 2});
  EXPECT_THROW(trace(behind, {x, y}), Unsupported);
  const auto inside = [](const Tensors& in) -> Tensors {
    return {in[0].mul(2).narrow(1, 0, 1).as_strided({1}, {1}, 1)};
  };
  const Tensor read = interpret(trace(inside, {x}), {x})[0];
  EXPECT_TRUE(at::equal(read, inside({x})[0]));
}

}  // namespace memory_layout_test
}  // namespace ahead
