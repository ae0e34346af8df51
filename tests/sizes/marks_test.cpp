#include "ahead/compiled_autograd.h"
#include "sizes/training.h"

/// ahead::mark_dynamic and ahead::mark_static, and the marks of results.
namespace ahead {
namespace marks_test {

using at::Tensor;
using Dims = std::vector<int64_t>;

Tensor with_dynamic(at::IntArrayRef sizes, int64_t dim) {
  const Tensor x = torch::randn(sizes);
  mark_dynamic(x, dim);
  return x;
}

Tensor with_static(at::IntArrayRef sizes, int64_t dim) {
  const Tensor x = torch::randn(sizes);
  mark_static(x, dim);
  return x;
}

template <class F>
std::string message_of(F&& function) {
  try {
    function();
  } catch (const UserError& error) {
    return error.msg();
  }
  return "";
}

TEST(Marks, TheSecondSizeIsEnoughForAProgram) {
  const auto f = [](const Tensor& x) { return x.sin() * 2; };
  auto compiled = compile(f), plain = compile(f);
  for (const int64_t size : {5, 9, 9, 9}) {
    const Tensor x = with_dynamic({size, 3}, 0);
    expect_same({f(x)}, {compiled(x)});
    plain(torch::randn({size, 3}));
  }
  EXPECT_EQ(compiled.stats().compilations, 1U);
  EXPECT_EQ(compiled.stats().observed_calls, 2U);
  EXPECT_NE(compiled.programs()[0].str().find("[s0, 3]"), std::string::npos);
  EXPECT_EQ(plain.programs()[0].str().find("s0"), std::string::npos);
}

TEST(Marks, WhatIsMarkedAsChangingIsNotTrusted) {
  const auto f = [](const Tensor& x) { return x * (x.size(0) % 3 == 0 ? 2 : 5); };
  auto compiled = compile(f);
  for (const int64_t size : rounds_of(2, 30, 3)) {
    const Tensor x = with_dynamic({size}, -1);
    expect_same({f(x)}, {compiled(x)});
  }
}

TEST(Marks, NewSizesAreObservedThoughTheyMayNeverComeAgain) {
  const auto f = [](const Tensor& x) { return x.sin().sum(); };
  auto compiled = compile(f);
  for (int64_t size = 2; size < 400; ++size) {
    const Tensor x = with_dynamic({size}, 0);
    expect_same({f(x)}, {compiled(x)});
  }
  EXPECT_EQ(compiled.stats().eager_calls, 0U);
  for (int64_t size = 300; size < 400; ++size) compiled(with_dynamic({size}, 0));
  EXPECT_GT(compiled.stats().cache_hits, 95U);
}

TEST(Marks, EachSizeOfAStaticDimensionHasAProgram) {
  const auto f = [](const Tensor& x) { return (x.sin() * 2).sum(1); };
  auto compiled = compile(f);
  for (const int64_t size : rounds_of(3, 6, 4)) {
    const Tensor x = with_static({5, size}, 1);
    expect_same({f(x)}, {compiled(x)});
  }
  EXPECT_EQ(compiled.stats().compilations, 4U);
  EXPECT_EQ(compiled.stats().eager_calls, 0U);
  for (const Program& program : compiled.programs())
    EXPECT_EQ(program.str().find("s0"), std::string::npos);
}

TEST(Marks, OtherDimensionsMayChangeForEachOfThem) {
  const auto f = [](const Tensor& x) { return (x.sin() * 2).sum(1); };
  auto compiled = compile(f);
  for (const int64_t batch : rounds_of(2, 20, 3)) {
    for (const int64_t size : {3, 4}) {
      const Tensor x = with_static({batch, size}, 1);
      expect_same({f(x)}, {compiled(x)});
    }
  }
  EXPECT_EQ(compiled.stats().compilations, 2U);
  EXPECT_EQ(compiled.stats().eager_calls, 0U);
  for (const Program& program : compiled.programs())
    EXPECT_EQ(program.str().find("s1"), std::string::npos) << program.str();
}

TEST(Marks, AStaticDimensionIsNotTrusted) {
  auto compiled =
      compile([](const Tensor& x) { return x.sin() * 2; }, {.dynamic = Dynamic::Trusting});
  for (const int64_t size : rounds_of(2, 12, 3)) compiled(torch::randn({size, 3}));
  const uint64_t before = compiled.stats().observed_calls;
  for (const int64_t size : shuffled(20, 29)) compiled(with_static({size, 3}, 0));
  EXPECT_EQ(compiled.stats().observed_calls - before, 10U);
}

TEST(Marks, BadInputIsSaid) {
  const Tensor x = torch::randn({2, 3});
  using Mark = void (*)(const Tensor&, int64_t);
  for (const Mark mark : {Mark(mark_dynamic), Mark(mark_static)}) {
    EXPECT_NE(message_of([&] { mark(Tensor(), 0); }).find("undefined"), std::string::npos);
    EXPECT_NE(message_of([&] { mark(x, 2); }).find("2 is no dimension"), std::string::npos);
    EXPECT_NE(message_of([&] { mark(x, -3); }).find("-3 is no dimension"), std::string::npos);
    EXPECT_NE(message_of([&] { mark(torch::tensor(1.0), 0); }).find("no dimension"),
              std::string::npos);
    EXPECT_NE(message_of([&] { mark(x.to_sparse(), 0); }).find("not dense"), std::string::npos);
  }
  mark_dynamic(x, 0);
  mark_static(x, -1);
  EXPECT_NE(message_of([&] { mark_static(x, 0); }).find("mark_dynamic before"), std::string::npos);
  EXPECT_NE(message_of([&] { mark_dynamic(x, 1); }).find("mark_static before"), std::string::npos);
  EXPECT_NE(message_of([&] { dynamic_dims(Tensor()); }).find("undefined"), std::string::npos);
  EXPECT_EQ(dynamic_dims(x), Dims{0});
  EXPECT_EQ(dynamic_dims(x.detach()), Dims{0});
  EXPECT_EQ(dynamic_dims(x + 1), Dims{});
}

TEST(Marks, ResultsSayWhichOfTheirSizesChange) {
  const Tensor w = torch::randn({3, 4}).requires_grad_();
  auto compiled = compile([&](const Tensor& x) {
    const Tensor y = x.matmul(w);
    return std::vector<Tensor>{y.tanh(), y.t(), w * 2, x, x.t(), y.sum()};
  });
  std::vector<Tensor> results;
  Tensor x;
  for (const int64_t size : rounds_of(2, 9, 3)) results = compiled(x = torch::randn({size, 3}));
  EXPECT_GT(compiled.stats().cache_hits, 8U);
  EXPECT_EQ(dynamic_dims(results[0]), Dims{0});
  EXPECT_EQ(dynamic_dims(results[1]), Dims{1});
  EXPECT_EQ(dynamic_dims(results[2]), Dims{});
  EXPECT_EQ(dynamic_dims(x), Dims{}) << "an argument is the caller's";
  EXPECT_EQ(dynamic_dims(results[4]), Dims{1});
  EXPECT_EQ(dynamic_dims(results[5]), Dims{});
  // They are weak: the user knows better.
  mark_static(results[0], 0);
  EXPECT_EQ(dynamic_dims(results[0]), Dims{});
}

TEST(Marks, MarkedResultsPrepareTheNextFunction) {
  auto first = compile([](const Tensor& x) { return x.sin(); });
  for (const int64_t size : rounds_of(2, 9, 3)) first(torch::randn({size, 3}));
  auto second = compile([](const Tensor& x) { return x.exp() + 1; });
  for (const int64_t size : {2, 3, 3}) second(first(torch::randn({size, 3})));
  EXPECT_EQ(second.stats().observed_calls, 2U);
  EXPECT_NE(second.programs()[0].str().find("[s0, 3]"), std::string::npos);
}

TEST(Marks, SavedTensorsPrepareCompiledAutograd) {
  const Tensor w = torch::randn({3, 4}).requires_grad_();
  const auto run = [&](int64_t size, bool is_marked, bool is_captured) {
    torch::manual_seed(size);
    const Tensor x = torch::randn({size, 3});
    if (is_marked) mark_dynamic(x, 0);
    w.mutable_grad() = Tensor();
    const Tensor loss = x.matmul(w).tanh().pow(3).sum();
    std::optional<compiled_autograd::Enable> on;
    if (is_captured) on.emplace(compiled_autograd::Options{.fullgraph = true});
    loss.backward();
    return w.grad();
  };
  for (const bool is_marked : {true, false}) {
    compiled_autograd::reset();
    for (const int64_t size : {5, 7, 9, 4})
      expect_same({run(size, is_marked, false)}, {run(size, is_marked, true)});
    EXPECT_EQ(compiled_autograd::stats().captures, is_marked ? 1U : 2U);
  }
}

}  // namespace marks_test
}  // namespace ahead
