#include <gtest/gtest.h>

#include <thread>

#include "ahead/ahead.h"
#include "support/eager.h"
#include "support/hits.h"
#include "support/journal.h"

namespace ahead {
namespace declarations_test {

using at::Tensor;
using Lines = std::vector<std::string>;

void expect_error(const std::function<void()>& action, const std::string& text) {
  EXPECT_THROW(action(), UserError);
  const std::string error = error_of(action);
  EXPECT_NE(error.find(text), std::string::npos) << error;
}

TEST(DeclareEffect, RefusesOperatorsThatDoNotExist) {
  expect_error([] { declare_effect("journal::notes"); },
               "[effects] journal::notes: there is no operator");
  expect_error([] { declare_pure("journal::square.out"); }, "there is no operator");
  expect_error([] { declare_effect("nonsense"); }, "there is no operator");
}

TEST(DeclareEffect, RefusesViews) {
  expect_error([] { declare_effect("aten::transpose.int"); }, "Ops with aliasing is not supported");
}

TEST(DeclarePure, RefusesWhatCannotBe) {
  expect_error([] { declare_pure("journal::note"); }, "it returns nothing");
  expect_error([] { declare_pure("aten::mul_.Tensor"); }, "it writes to an argument");
}

/// Calls an operator of whose results some are not used and some are the same.
Tensor squares(const Tensor& x) {
  journal::square(x);
  return journal::square(x + 1) * journal::square(x + 1);
}

Lines in_a_hit(Compiled<Tensor (*)(const Tensor&)>& f) {
  const Tensor x = torch::ones({2});
  journal::take();
  f(x);
  return journal::take();
}

TEST(DeclareEffect, KeepsCallsThatWouldBeDropped) {
  const Lines all = {"square: 1 1", "square: 2 2", "square: 2 2"}, merged = {"square: 2 2"};
  auto before = compiled_by_call(&squares, {}, torch::ones({2}));
  EXPECT_EQ(in_a_hit(before), merged);
  declare_effect("journal::square");
  EXPECT_EQ(in_a_hit(before), merged) << "programs stay as they are";
  auto after = compiled_by_call(&squares, {}, torch::ones({2}));
  EXPECT_EQ(in_a_hit(after), all);
  before.reset();
  in_a_hit(before);
  EXPECT_EQ(in_a_hit(before), all);
  declare_pure("journal::square");
  auto pure = compiled_by_call(&squares, {}, torch::ones({2}));
  EXPECT_EQ(in_a_hit(pure), merged);
}

TEST(DeclarePure, LetsCustomOperatorsBeDropped) {
  const auto twice = [](const Tensor& x) {
    journal::copy("unused", x);
    return journal::copy("used", x) + 1;
  };
  declare_pure("journal::copy");
  auto f = compiled_by_call(twice, {}, torch::ones({2}));
  journal::take();
  f(torch::ones({2}));
  EXPECT_EQ(journal::take(), (Lines{"used: 1 1"}));
  declare_effect("journal::copy");
  auto g = compiled_by_call(twice, {}, torch::ones({2}));
  journal::take();
  g(torch::ones({2}));
  EXPECT_EQ(journal::take(), (Lines{"unused: 1 1", "used: 1 1"}));
}

TEST(DeclareEffect, MakesOneCallOfACompositeOperator) {
  declare_effect("journal::halve");
  auto f = compiled_by_call([](const Tensor& x) { return journal::halve("h", x) + 1; },
                            {.fullgraph = true}, torch::ones({2}));
  journal::take();
  EXPECT_TRUE(at::equal(f(torch::full({2}, 4.0)), torch::full({2}, 3.0)));
  EXPECT_EQ(journal::take(), (Lines{"h: 4 4"}));
  expect_hits(f);
  // It has LibTorch's gradients inside, which one call has not.
  auto g = compile([](const Tensor& x) { return journal::halve("h", x) + 1; });
  for (int call = 0; call < 4; ++call) {
    const Tensor x = torch::ones({2}).requires_grad_();
    g(x).sum().backward();
    EXPECT_TRUE(at::equal(x.grad(), torch::full({2}, 0.5)));
  }
  expect_runs_eagerly(g, 2);
  auto strict = compile([](const Tensor& x) { return journal::halve("h", x) + 1; },
                        {.fullgraph = true, .confirm = Confirm::Never});
  const std::string error = error_of([&] { strict(torch::ones({2}).requires_grad_()); });
  EXPECT_NE(error.find("declared to be an effect"), std::string::npos) << error;
  journal::take();
}

TEST(DeclareEffect, IsNotRunByATrace) {
  journal::take();
  const Graph graph = trace(
      [](const std::vector<Tensor>& in) {
        journal::note("a", in[0]);
        journal::jot("b", in[0]);
        journal::mark("c");
        return std::vector<Tensor>{in[0] * 2};
      },
      {torch::ones({2})});
  EXPECT_TRUE(journal::take().empty());
  interpret(graph, {torch::ones({2})});
  EXPECT_EQ(journal::take(), (Lines{"a: 1 1", "b: 1 1", "c"}));
  declare_effect("journal::copy");
  const auto with_result = [](const std::vector<Tensor>& in) {
    return std::vector<Tensor>{journal::copy("d", in[0])};
  };
  const std::string error = error_of([&] { trace(with_result, {torch::ones({2})}); });
  EXPECT_NE(error.find("running it to find out would be once too often"), std::string::npos)
      << error;
  const auto with_number = [](const std::vector<Tensor>& in) {
    return std::vector<Tensor>{in[0] * static_cast<double>(journal::length(in[0]))};
  };
  const std::string other = error_of([&] { trace(with_number, {torch::ones({2})}); });
  EXPECT_NE(other.find("returns something that is no tensor"), std::string::npos) << other;
  EXPECT_TRUE(journal::take().empty());
}

TEST(DeclareEffect, MayBeCalledByThreads) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([i] {
      for (int k = 0; k < 50; ++k) {
        i % 2 == 0 ? declare_effect("journal::square") : declare_pure("journal::square");
        trace(
            [](const std::vector<Tensor>& in) {
              return std::vector<Tensor>{journal::square(in[0])};
            },
            {torch::ones({2})});
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  declare_pure("journal::square");
}

TEST(EffectResults, OfAnotherShapeAreAnError) {
  auto queue = c10::make_intrusive<journal::Queue>();
  for (const int64_t size : {2, 2, 3}) queue->items.push_back(torch::ones({size}));
  auto f = compile([queue](const Tensor& x) { return journal::pop(queue).sum() + x; },
                   {.confirm = Confirm::Never});
  f(torch::ones({1}));
  f(torch::ones({1}));
  const std::string error = error_of([&] { f(torch::ones({1})); });
  EXPECT_NE(
      error.find("journal::pop: it returned f32[3], but f32[2] when the function was compiled"),
      std::string::npos)
      << error;
}

TEST(EffectResults, ThatTheHostReadsRunEagerly) {
  auto queue = c10::make_intrusive<journal::Queue>();
  for (int i = 0; i < 8; ++i) queue->items.push_back(torch::ones({2}));
  const auto read = [queue](const Tensor& x) {
    return journal::pop(queue).sum().item<double>() > 1 ? x * 2 : x * 3;
  };
  auto f = compile(read);
  for (int call = 0; call < 4; ++call) f(torch::ones({2}));
  expect_runs_eagerly(f, 2);
  EXPECT_EQ(queue->items.size(), 4u);
  auto strict = compile(read, {.fullgraph = true, .confirm = Confirm::Never});
  const std::string error = error_of([&] { strict(torch::ones({2})); });
  EXPECT_NE(error.find("reads a value that comes from an operator with an effect"),
            std::string::npos)
      << error;
}

}  // namespace declarations_test
}  // namespace ahead
