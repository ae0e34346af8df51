#include <c10/util/Exception.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>

#include "ahead/ahead.h"
#include "eager/harness.h"

/// What a compiled function says of itself.
namespace ahead::test {
namespace reasons_test {

/// While it exists, LibTorch's warnings are kept.
class Heard {
 public:
  const std::vector<std::string>& lines() const { return handler_.lines; }
  bool has(const std::string& text) const {
    return std::any_of(lines().begin(), lines().end(), [&](const std::string& line) {
      return line.find(text) != std::string::npos;
    });
  }

 private:
  struct Handler : c10::WarningHandler {
    std::vector<std::string> lines;
    void process(const c10::Warning& warning) override { lines.push_back(warning.msg()); }
  };
  Handler handler_;
  c10::WarningUtils::WarningHandlerGuard guard_{&handler_};
};

TEST(Reasons, AreSaidByEachFunction) {
  for (int i = 0; i < 2; ++i) {
    const Heard heard;
    auto f = compile([](const at::Tensor& x) { return x * x.sum().item<double>(); });
    for (int call = 0; call < 12; ++call) f(at::rand({3}));
    EXPECT_EQ(heard.lines().size(), 1u);
    EXPECT_TRUE(heard.has("a value that is read"));
  }
}

TEST(Reasons, AreOneForAllSizes) {
  const Heard heard;
  auto f = compile([](const at::Tensor& x) { return x.to_sparse().to_dense(); },
                   {.recompile_limit = 100});
  for (int call = 0; call < 60; ++call) f(at::rand({3 + call / 3}));
  EXPECT_EQ(heard.lines().size(), 1u) << heard.lines().back();
}

TEST(Reasons, HaveOnePrefixAndWholeSentences) {
  const Heard heard;
  auto selects = compile([](const at::Tensor& x) { return x.to_sparse().to_dense(); });
  for (int call = 0; call < 8; ++call) selects(at::rand({5}));
  const at::Tensor table = leaf({5, 3});
  auto embeds = compile([&](const at::Tensor& x) {
    return at::embedding(table * 2, x, -1, /*scale_grad_by_freq=*/false, /*sparse=*/true);
  });
  for (int call = 0; call < 8; ++call) embeds(at::arange(3));
  ASSERT_EQ(heard.lines().size(), 2u);
  for (const std::string& line : heard.lines()) {
    SCOPED_TRACE(line);
    EXPECT_EQ(std::count(line.begin(), line.begin() + 20, '['), 1);
    EXPECT_EQ(line.back(), '.');
    EXPECT_EQ(line.find("Impl Call"), std::string::npos);
    EXPECT_EQ(line.find("tracing"), std::string::npos);
  }
}

TEST(Reasons, NameTheArgumentThatIsAnotherEachTime) {
  const Heard heard;
  auto numbers = compile([](const at::Tensor& x, double rate) { return x * rate; },
                         {.dynamic = Dynamic::Static});
  for (int call = 0; call < 40; ++call) numbers(at::rand({3}), call + 0.5);
  EXPECT_TRUE(heard.has("made for (Tensor, 30.5), not for (Tensor, 31.5)")) << heard.lines().size();
  EXPECT_TRUE(heard.has("as a tensor"));
  auto sizes = compile([](const at::Tensor& x) { return x * 2; }, {.dynamic = Dynamic::Static});
  for (int call = 0; call < 40; ++call) sizes(at::rand({1 + call}));
  EXPECT_TRUE(heard.has("[31]")) << heard.lines().size();
  EXPECT_TRUE(heard.has("[32]"));
}

TEST(Reasons, NameTheValueThatIsAnotherEachTime) {
  const Heard heard;
  auto counts = compile([](const at::Tensor& x) { return at::zeros({x.sum().item<int64_t>()}); });
  for (int call = 0; call < 40; ++call) counts(at::full({}, call));
  ASSERT_EQ(heard.lines().size(), 1u);
  EXPECT_TRUE(heard.has("a value that is read: 31 instead of 30")) << heard.lines()[0];
}

TEST(Reasons, ConstantCallablesCanBeCalled) {
  const auto f = compile([calls = 0](const at::Tensor& x) mutable { return x + ++calls; });
  EXPECT_TRUE(same_values(f(at::zeros({2})), at::ones({2})));
  EXPECT_EQ(f.explain(at::zeros({2})), "nothing is compiled yet");
}

}  // namespace reasons_test
}  // namespace ahead::test
