#include <gtest/gtest.h>
#include <torch/library.h>
#include <torch/torch.h>

#include <stdexcept>

#include "ahead/ahead.h"
#include "support/hits.h"

/// Errors of LibTorch and of the user's own code, in calls that are observed and in traces.
namespace ahead {
namespace trace_errors_test {

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

/// Eager's result depends on the order in which it reads and writes, so that no graph can have it.
void overwrite_an_operand(const at::Tensor& matrix) {
  at::Tensor result = matrix;
  at::mm_out(result, matrix, at::ones_like(matrix));
}

TEST(TraceErrors, WhatATraceRefusesRunsEagerly) {
  const Warnings warnings;
  const at::Tensor captured = at::ones({3});
  int runs = 0;
  auto compiled = compile([&](const at::Tensor& x) {
    ++runs;
    captured.mul_(2);
    x.unsqueeze_(0);
    const at::Tensor noise = at::rand({3});
    overwrite_an_operand(at::eye(3));
    return x.mul_(3) + noise;
  });
  torch::manual_seed(5);
  const at::Tensor noise = at::rand({3});
  for (int call = 0; call < 4; ++call) {
    torch::manual_seed(5);
    const at::Tensor x = at::ones({3});
    const at::Tensor result = compiled(x);
    EXPECT_TRUE(at::equal(result, x + noise));
    EXPECT_EQ(x.sizes(), at::IntArrayRef({1, 3}));
    EXPECT_EQ(x[0][0].item<float>(), 3);
  }
  EXPECT_EQ(runs, 4);
  EXPECT_EQ(captured[0].item<float>(), 16);
  EXPECT_EQ(compiled.stats().traces, 1u);
  expect_runs_eagerly(compiled, 2);
  EXPECT_EQ(warnings.count("aten.mm.out"), 1u);
  EXPECT_NE(compiled.explain(at::ones({3})).find("aten.mm.out"), std::string::npos);
}

at::Tensor tripled(const at::Tensor& x) {
  return x * 3;
}

TORCH_LIBRARY(ahead_trace_errors, m) {
  m.def("tripled(Tensor x) -> Tensor");
}
TORCH_LIBRARY_IMPL(ahead_trace_errors, CPU, m) {
  m.impl("tripled", tripled);
}
TORCH_LIBRARY_IMPL(ahead_trace_errors, Meta, m) {
  m.impl("tripled", [](const at::Tensor& x) {
    TORCH_CHECK(false, "only the trace fails");
    return at::empty_like(x);
  });
}

TEST(TraceErrors, ComplaintAboutTheTraceAloneRunsEagerly) {
  const Warnings warnings;
  const auto f = [](const at::Tensor& x) {
    const auto op =
        c10::Dispatcher::singleton().findSchemaOrThrow("ahead_trace_errors::tripled", "");
    x.add_(1);
    return op.typed<at::Tensor(const at::Tensor&)>().call(x).sin();
  };
  for (const Confirm confirm : {Confirm::Never, Confirm::Doubling}) {
    auto compiled = compile(f, {.confirm = confirm});
    for (int call = 0; call < 4; ++call) {
      const at::Tensor x = at::randn({3}), twin = x.clone();
      EXPECT_TRUE(at::equal(compiled(x), f(twin))) << call;
      EXPECT_TRUE(at::equal(x, twin));
    }
    expect_runs_eagerly(compiled, confirm == Confirm::Never ? 1 : 2);
    EXPECT_EQ(compiled.stats().traces, 1u);
    EXPECT_NE(compiled.explain(at::ones({3})).find("only the trace fails"), std::string::npos);
  }
  EXPECT_EQ(warnings.count("only the trace fails"), 2u) << "once by each function";

  auto whole = compile(f, {.fullgraph = true, .confirm = 0});
  const at::Tensor x = at::ones({3});
  try {
    whole(x);
    FAIL() << "nothing is thrown";
  } catch (const c10::Error& error) {
    EXPECT_NE(error.msg().find("only the trace fails"), std::string::npos) << error.msg();
  }
  EXPECT_EQ(x[0].item<float>(), 2);
}

TEST(TraceErrors, FunctionsWithoutAResultAndResultsByReferenceRunEagerlyToo) {
  const at::Tensor kept = at::ones({3});
  auto nothing = compile(
      [](const at::Tensor& x) {
        overwrite_an_operand(at::eye(3));
        x.mul_(2);
      },
      {.confirm = 0});
  auto reference = compile(
      [&](const at::Tensor& x) -> const at::Tensor& {
        overwrite_an_operand(at::eye(3));
        x.mul_(2);
        return kept;
      },
      {.confirm = 0});
  const at::Tensor x = at::ones({3});
  for (int call = 0; call < 3; ++call) {
    nothing(x);
    EXPECT_TRUE(reference(x).is_same(kept));
  }
  EXPECT_EQ(x[0].item<float>(), 64);
  expect_runs_eagerly(nothing);
  expect_runs_eagerly(reference);
}

TEST(TraceErrors, FunctionsWithoutAResultAndResultsByReferenceRunFromGraphs) {
  const at::Tensor kept = at::ones({3});
  auto nothing = compile([](const at::Tensor& x) { x.mul_(2); }, {.fullgraph = true, .confirm = 0});
  auto reference = compile(
      [&](const at::Tensor& x) -> const at::Tensor& {
        x.mul_(2);
        return kept;
      },
      {.fullgraph = true, .confirm = 0});
  const at::Tensor x = at::ones({3});
  for (int call = 0; call < 3; ++call) {
    nothing(x);
    EXPECT_TRUE(reference(x).is_same(kept));
  }
  EXPECT_EQ(x[0].item<float>(), 64);
  expect_hits(nothing);
  expect_hits(reference);
}

TEST(TraceErrors, WithFullgraphTheRefusalIsThrownOnceTheCallIsServed) {
  for (const Confirm confirm : {Confirm::Never, Confirm::Doubling}) {
    auto compiled = compile(
        [](const at::Tensor& x) {
          x.mul_(2);
          overwrite_an_operand(at::eye(3));
          return x + 1;
        },
        {.fullgraph = true, .confirm = confirm});
    const at::Tensor x = at::ones({3});
    if (confirm == Confirm::Doubling) {
      EXPECT_TRUE(at::equal(compiled(at::ones({3})), at::full({3}, 3.0)));
    }
    try {
      compiled(x);
      FAIL() << "nothing is thrown";
    } catch (const Unsupported& error) {
      EXPECT_NE(error.msg().find("aten.mm.out"), std::string::npos) << error.msg();
    }
    EXPECT_EQ(x[0].item<float>(), 2);
  }
}

TEST(TraceErrors, ErrorOfTheProgramIsEagersAndIsNotRemembered) {
  const Warnings warnings;
  int64_t index = 7;
  const auto f = [&](const at::Tensor& x) { return x.select(0, index) * 2; };
  auto compiled = compile(f, {.confirm = 0});
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
  for (int call = 0; call < 3; ++call) EXPECT_TRUE(at::equal(compiled(x), x[1] * 2));
  EXPECT_EQ(compiled.explain(x), "program 0 fits");
  EXPECT_EQ(compiled.stats().observed_calls, 3u);
  EXPECT_EQ(compiled.stats().cache_hits, 2u);
}

TEST(TraceErrors, ErrorOfACallThatIsObservedAgainIsEagers) {
  bool fails = false;
  auto compiled = compile([&](const at::Tensor& x) {
    TORCH_CHECK(!fails, "this time it fails");
    return x * 2;
  });
  const at::Tensor x = at::randn({3});
  for (int call = 1; call <= 3; ++call) EXPECT_TRUE(at::equal(compiled(x), x * 2));
  EXPECT_EQ(compiled.stats().cache_hits, 1u);
  fails = true;
  EXPECT_THROW(compiled(x), c10::Error);
  fails = false;
  for (int call = 5; call <= 8; ++call) EXPECT_TRUE(at::equal(compiled(x), x * 2));
  EXPECT_GT(compiled.stats().cache_hits, 1u);
  EXPECT_EQ(compiled.stats().eager_calls, 0u);
}

TEST(TraceErrors, FunctionThatReadsValuesOfAnotherCapturedTensorLater) {
  at::Tensor w = at::ones({3});
  bool reads_values = false;
  auto compiled = compile(
      [&](const at::Tensor& x) { return reads_values ? x * w.sum().item<float>() : x * w; });
  const at::Tensor x = at::randn({3}), other_owner = w;
  for (int call = 0; call < 3; ++call) EXPECT_TRUE(at::equal(compiled(x), x));
  w = at::full({3}, 2.0);
  reads_values = true;
  for (int call = 0; call < 6; ++call) EXPECT_TRUE(at::equal(compiled(x), x * 6));
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
        {.fullgraph = fullgraph, .confirm = 0});
    EXPECT_THROW(compiled(at::ones({3})), OwnError);
    EXPECT_EQ(runs, 1);
    for (int call = 0; call < 2; ++call)
      EXPECT_TRUE(at::equal(compiled(at::ones({2})), at::full({2}, 2.0)));
    EXPECT_EQ(runs, 2);
    EXPECT_EQ(compiled.stats().cache_hits, 1u);
    EXPECT_THROW(compiled(at::ones({3})), OwnError);
    EXPECT_EQ(runs, 3);
  }
}

}  // namespace trace_errors_test
}  // namespace ahead
