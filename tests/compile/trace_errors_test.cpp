#include <gtest/gtest.h>
#include <torch/torch.h>

#include <stdexcept>

#include "ahead/ahead.h"

/// Errors of LibTorch and of the user's own code during a trace.
namespace ahead {
namespace {

/// Collects warnings while it exists.
class Warnings : public c10::WarningHandler {
 public:
  void process(const c10::Warning& warning) override { texts_.push_back(warning.msg()); }
  size_t count(const std::string& part) const {
    size_t found = 0;
    for (const std::string& text : texts_) found += text.find(part) != std::string::npos;
    return found;
  }

 private:
  std::vector<std::string> texts_;
  c10::WarningUtils::WarningHandlerGuard guard_{this};
};

/// LibTorch may complain about traced tensors only.
void complain_if_traced(const char* complaint) {
  TORCH_CHECK(!detail::is_tracing(), complaint);
}

TEST(TraceErrors, ComplaintAboutTheTraceAloneRunsEagerly) {
  const Warnings warnings;
  const at::Tensor captured = at::ones({3});
  auto compiled = compile([&](const at::Tensor& x) {
    captured.mul_(2);
    x.unsqueeze_(0);
    const at::Tensor noise = at::rand({3});
    complain_if_traced("only the first kind of trace fails");
    return x.mul_(3) + noise;
  });
  torch::manual_seed(5);
  const at::Tensor noise = at::rand({3});
  for (int call = 0; call < 3; ++call) {
    torch::manual_seed(5);
    const at::Tensor x = at::ones({3});
    const at::Tensor result = compiled(x);
    EXPECT_TRUE(at::equal(result, x + noise));
    EXPECT_EQ(x.sizes(), at::IntArrayRef({1, 3}));
    EXPECT_EQ(x[0][0].item<float>(), 3);
  }
  EXPECT_EQ(captured[0].item<float>(), 8);
  EXPECT_EQ(compiled.stats().traces, 1u);
  EXPECT_EQ(compiled.stats().eager_calls, 3u);
  EXPECT_EQ(warnings.count("only the first kind of trace fails"), 1u);
  EXPECT_NE(compiled.explain(at::ones({3})).find("only the first kind of trace fails"),
            std::string::npos);
}

TEST(TraceErrors, FunctionsWithoutAResultAndResultsByReferenceRunEagerlyToo) {
  const at::Tensor kept = at::ones({3});
  auto nothing = compile([](const at::Tensor& x) {
    complain_if_traced("no result");
    x.mul_(2);
  });
  auto reference = compile([&](const at::Tensor& x) -> const at::Tensor& {
    complain_if_traced("a result by reference");
    x.mul_(2);
    return kept;
  });
  const at::Tensor x = at::ones({3});
  nothing(x);
  EXPECT_TRUE(reference(x).is_same(kept));
  EXPECT_EQ(x[0].item<float>(), 4);
}

TEST(TraceErrors, WithFullgraphTheComplaintIsThrownAndNothingIsWritten) {
  auto compiled = compile(
      [](const at::Tensor& x) {
        x.mul_(2);
        complain_if_traced("only while tracing");
        return x + 1;
      },
      {.fullgraph = true});
  const at::Tensor x = at::ones({3});
  try {
    compiled(x);
    FAIL() << "nothing is thrown";
  } catch (const c10::Error& error) {
    EXPECT_EQ(error.msg(), "only while tracing");
    EXPECT_NE(std::string(error.what()).find("without Options::fullgraph"), std::string::npos);
  }
  EXPECT_EQ(x[0].item<float>(), 1);
}

TEST(TraceErrors, ErrorOfTheProgramIsEagersAndIsNotRemembered) {
  const Warnings warnings;
  int64_t index = 7;
  const auto f = [&](const at::Tensor& x) { return x.select(0, index) * 2; };
  auto compiled = compile(f);
  const at::Tensor x = at::randn({3});
  for (int call = 0; call < 2; ++call) {
    std::string expected;
    try {
      f(x);
    } catch (const c10::IndexError& error) {
      expected = error.msg();
    }
    try {
      compiled(x);
      FAIL() << "nothing is thrown";
    } catch (const c10::IndexError& error) {
      EXPECT_EQ(error.msg(), expected);
    }
  }
  EXPECT_EQ(warnings.count("select"), 0u);
  index = 1;
  EXPECT_TRUE(at::equal(compiled(x), x[1] * 2));
  EXPECT_FALSE(compiled.programs().empty());
  EXPECT_EQ(compiled.explain(x), "program 0 fits");
}

TEST(TraceErrors, ProgramThatFailsWhenItIsConfirmedIsForgotten) {
  bool fails = false;
  auto compiled = compile([&](const at::Tensor& x) {
    TORCH_CHECK(!fails, "this time it fails");
    return x * 2;
  });
  const at::Tensor x = at::randn({3});
  EXPECT_TRUE(at::equal(compiled(x), x * 2));
  fails = true;
  EXPECT_THROW(compiled(x), c10::Error);
  EXPECT_EQ(compiled.explain(x), "nothing is compiled yet");
  fails = false;
  EXPECT_TRUE(at::equal(compiled(x), x * 2));
}

TEST(TraceErrors, FunctionThatBecomesUntraceableWithAnotherCapturedTensorRunsEagerly) {
  at::Tensor w = at::ones({3});
  bool reads_values = false;
  auto compiled = compile(
      [&](const at::Tensor& x) { return reads_values ? x * w.sum().item<float>() : x * w; });
  const at::Tensor x = at::randn({3}), other_owner = w;
  for (int call = 0; call < 3; ++call) EXPECT_TRUE(at::equal(compiled(x), x));
  w = at::full({3}, 2.0);
  reads_values = true;
  for (int call = 0; call < 2; ++call) EXPECT_TRUE(at::equal(compiled(x), x * 6));
}

struct OwnError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

TEST(TraceErrors, ExceptionsOfTheUsersOwnTypesPassUnchanged) {
  for (const bool fullgraph : {false, true}) {
    int runs = 0;
    auto compiled = compile(
        [&](const at::Tensor& x) -> at::Tensor {
          ++runs;
          if (x.size(0) == 3) throw OwnError("three");
          return x * 2;
        },
        {.fullgraph = fullgraph});
    EXPECT_THROW(compiled(at::ones({3})), OwnError);
    EXPECT_EQ(runs, 1);
    EXPECT_TRUE(at::equal(compiled(at::ones({2})), at::full({2}, 2.0)));
  }
}

}  // namespace
}  // namespace ahead
