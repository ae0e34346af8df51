#include <gtest/gtest.h>
#include <torch/csrc/autograd/forward_grad.h>
#include <torch/torch.h>

#include "ahead/ahead.h"
#include "support/eager.h"

/// Tangents of LibTorch's forward mode: calls that bring some run eagerly.
namespace ahead {
namespace forward_mode_test {

using Tensors = std::vector<at::Tensor>;
using torch::autograd::ForwardADLevel;

class Level {
 public:
  Level() : index_(ForwardADLevel::get_next_idx()) {}
  ~Level() { ForwardADLevel::release_idx(index_); }
  Level(const Level&) = delete;
  Level& operator=(const Level&) = delete;

  at::Tensor dual(const at::Tensor& primal, const at::Tensor& tangent) const {
    return at::_make_dual(primal, tangent, static_cast<int64_t>(index_));
  }
  Tensors parts(const at::Tensor& dual) const {
    const auto parts = at::_unpack_dual(dual, static_cast<int64_t>(index_));
    return {std::get<0>(parts), std::get<1>(parts)};
  }

 private:
  const uint64_t index_;
};

TEST(ForwardMode, TangentsOfArguments) {
  const auto f = [](const at::Tensor& x) { return x.sin() * x; };
  auto compiled = compile(f, {.confirm = 0});
  const at::Tensor x = torch::randn({3}), tangent = torch::randn({3});
  for (int call = 0; call < 3; ++call) {
    expect_same({f(x)}, {compiled(x)});
    const Level level;
    const at::Tensor dual = level.dual(x, tangent);
    const Tensors eager = level.parts(f(dual));
    ASSERT_TRUE(eager[1].defined());
    expect_same(eager, level.parts(compiled(dual)));
  }
  EXPECT_EQ(compiled.stats().observed_calls, 2u);
  EXPECT_EQ(compiled.stats().cache_hits, 2u);
  EXPECT_EQ(compiled.stats().eager_calls, 2u);
}

TEST(ForwardMode, AreRefusedByATrace) {
  const Level level;
  const at::Tensor dual = level.dual(torch::randn({3}), torch::randn({3}));
  EXPECT_THROW(trace([](const Tensors& in) { return Tensors{in[0] * 2}; }, Tensors{dual}),
               Unsupported);
  EXPECT_THROW(
      trace([&](const Tensors& in) { return Tensors{in[0] * dual}; }, Tensors{torch::ones({3})}),
      Unsupported);
}

}  // namespace forward_mode_test
}  // namespace ahead
