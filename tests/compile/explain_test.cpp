#include <gtest/gtest.h>
#include <torch/torch.h>

#include "ahead/ahead.h"

namespace ahead {
namespace explain_test {

TEST(Explain, NamesWhatDiffers) {
  at::Tensor weight = at::ones({3});
  auto compiled = compile([&](const at::Tensor& a, const at::Tensor& b) { return a * b * weight; },
                          {.fullgraph = true, .confirm = 0});
  const at::Tensor a = at::ones({3});
  EXPECT_EQ(compiled.explain(a, a), "nothing is compiled yet");
  compiled(a, at::ones({3}));
  EXPECT_EQ(compiled.explain(a, at::ones({3})), "program 0 fits");
  EXPECT_EQ(compiled.explain(a, at::ones({2, 3})),
            "program 0: tensor 1: expected f32[3], got f32[2, 3]");
  EXPECT_EQ(compiled.explain(a, a), "program 0: other arguments are the same tensor");
  weight.set_requires_grad(true);
  EXPECT_EQ(compiled.explain(a, at::ones({3})),
            "program 0: a captured tensor: expected f32[3], got f32[3] requires_grad");
}

TEST(Explain, SaysWhyCallsRunEagerly) {
  auto sized = compile([](const at::Tensor& x) { return x.to_sparse().to_dense(); });
  for (int call = 0; call < 2; ++call) sized(at::ones({3}));
  const std::string refusal = sized.explain(at::ones({3}));
  EXPECT_EQ(refusal.find("runs eagerly: "), 0u) << refusal;
  EXPECT_NE(refusal.find("sparse"), std::string::npos) << refusal;

  auto reading = compile([](const at::Tensor& x) { return x * x.sum().item<double>(); });
  for (int call = 0; call < 8; ++call) reading(at::full({3}, static_cast<double>(call)));
  EXPECT_GT(reading.stats().eager_calls, 0u);
  EXPECT_EQ(reading.stats().cache_hits, 0u);
  const std::string reason = reading.explain(at::ones({3}));
  EXPECT_EQ(reason.find("runs eagerly: "), 0u) << reason;
  EXPECT_NE(reason.find("value that is read"), std::string::npos) << reason;
}

}  // namespace explain_test
}  // namespace ahead
