#include <gtest/gtest.h>
#include <torch/torch.h>

#include "ahead/checkpoint.h"
#include "ahead/compiled_autograd.h"
#include "support/eager.h"
#include "support/engine_check.h"

namespace ahead {
namespace custom_functions_test {

using test::expect_as_eager;
using test::expect_error_as_eager;
using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;
using Tensors = std::vector<at::Tensor>;

/// Whether a graph has the function's backward in it, or it is called each time.
template <class Program>
void expect_parts(Program program, uint64_t parts) {
  const auto stats = expect_as_eager(program);
  EXPECT_EQ(stats.captures, 1u);
  EXPECT_EQ(stats.compiles, parts) << compiled_autograd::reasons().back();
  EXPECT_EQ(stats.cache_hits, 2u);
}

template <bool traceable>
struct InPlace : Function<InPlace<traceable>> {
  static constexpr bool is_traceable = traceable;
  static at::Tensor forward(AutogradContext* context, at::Tensor x) {
    context->mark_dirty({x});
    return x.mul_(3);
  }
  static variable_list backward(AutogradContext*, const variable_list& grads) {
    return {grads[0] * 3};
  }
};

TEST(EngineCustomFunctions, ThatWriteToTheirInput) {
  const auto program = [](auto function) {
    return [function] {
      const at::Tensor x = leaf({4});
      at::Tensor h = x.exp() * 1;
      h = decltype(function)::apply(h);
      h.sin().sum().backward();
      return Tensors{x.grad(), h.detach()};
    };
  };
  // LibTorch does not say what functions hold that mark inputs or results.
  expect_parts(program(InPlace<true>()), 2);
  expect_parts(program(InPlace<false>()), 2);
}

TEST(EngineCustomFunctions, ThatWriteToAView) {
  expect_as_eager([] {
    const at::Tensor x = leaf({4, 2});
    const at::Tensor base = x * 2;
    at::Tensor view = base.select(1, 0);
    InPlace<true>::apply(view);
    base.sin().sum().backward();
    return Tensors{x.grad()};
  });
}

struct Indices : Function<Indices> {
  static constexpr bool is_traceable = true;
  static variable_list forward(AutogradContext* context, const at::Tensor& x) {
    auto [values, indices] = x.sort();
    context->mark_non_differentiable({indices});
    context->save_for_backward({indices});
    return {values, indices};
  }
  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    const at::Tensor indices = context->get_saved_variables()[0];
    return {at::zeros_like(grads[0]).scatter(0, indices, grads[0])};
  }
};

TEST(EngineCustomFunctions, ResultsThatAreNotDifferentiable) {
  expect_parts(
      [] {
        const at::Tensor x = leaf({5});
        const auto out = Indices::apply(x.exp());
        (out[0] * out[1]).sum().backward();
        return Tensors{x.grad()};
      },
      2);
}

struct PassThrough : Function<PassThrough> {
  static constexpr bool is_traceable = true;
  static at::Tensor forward(AutogradContext*, const at::Tensor& x) { return x; }
  static variable_list backward(AutogradContext*, const variable_list& grads) {
    return {-grads[0]};
  }
};

TEST(EngineCustomFunctions, ThatReturnTheirInput) {
  expect_parts(
      [] {
        const at::Tensor x = leaf({4});
        PassThrough::apply(PassThrough::apply(PassThrough::apply(x)).exp()).sum().backward();
        return Tensors{x.grad()};
      },
      1);
}

template <bool materialize>
struct TwoResults : Function<TwoResults<materialize>> {
  static constexpr bool is_traceable = true;
  static variable_list forward(AutogradContext* context, const at::Tensor& x) {
    context->set_materialize_grads(materialize);
    return {x * 2, x * 3};
  }
  static variable_list backward(AutogradContext*, const variable_list& grads) {
    at::Tensor sum;
    for (size_t i = 0; i < 2; ++i) {
      if (!grads[i].defined()) continue;
      const at::Tensor scaled = grads[i] * static_cast<double>(2 + i);
      sum = sum.defined() ? sum + scaled : scaled;
    }
    return {sum};
  }
};

TEST(EngineCustomFunctions, UndefinedGradientsAreMaterializedOrNot) {
  const auto program = [](auto function, size_t used) {
    return [function, used] {
      const at::Tensor x = leaf({4});
      const auto out = decltype(function)::apply(x.exp());
      (used == 2 ? out[0] * out[1] : out[used].sin()).sum().backward();
      return Tensors{x.grad()};
    };
  };
  for (size_t used : {0, 1, 2}) {
    expect_parts(program(TwoResults<true>(), used), 1);
    expect_parts(program(TwoResults<false>(), used), 1);
  }
}

struct OddGradients : Function<OddGradients> {
  static constexpr bool is_traceable = true;
  static at::Tensor forward(AutogradContext*, const at::Tensor& x, const at::Tensor& y,
                            const at::Tensor& z) {
    return x + y + z;
  }
  static variable_list backward(AutogradContext*, const variable_list& grads) {
    return {grads[0].sum().expand({3, 4}), grads[0].to(at::kDouble), grads[0].t().clone().t()};
  }
};

TEST(EngineCustomFunctions, GradientsOfOtherLayoutsAndDtypes) {
  expect_parts(
      [] {
        const at::Tensor x = leaf({3, 4}), y = leaf({3, 4}), z = leaf({3, 4});
        OddGradients::apply(x, y, z.exp()).sin().sum().backward();
        return Tensors{x.grad(), y.grad(), z.grad()};
      },
      1);
}

struct ReadsValues : Function<ReadsValues> {
  static constexpr bool is_traceable = true;
  static at::Tensor forward(AutogradContext*, const at::Tensor& x) { return x * 2; }
  static variable_list backward(AutogradContext*, const variable_list& grads) {
    return {grads[0].sum().item<double>() > 0 ? grads[0] * 2 : grads[0] * 5};
  }
};

TEST(EngineCustomFunctions, TraceableThatReadsValuesIsCalledEachTime) {
  double sign = 1;
  const auto program = [&sign] {
    const at::Tensor x = leaf({4});
    (ReadsValues::apply(x.exp()).sin() * 0 + ReadsValues::apply(x.cos()))
        .sum()
        .mul(sign)
        .backward();
    return Tensors{x.grad()};
  };
  EXPECT_EQ(expect_as_eager(program).captures, 1u);
  sign = -1;
  expect_as_eager(program);
}

struct Throws : Function<Throws> {
  static constexpr bool is_traceable = true;
  static at::Tensor forward(AutogradContext*, const at::Tensor& x) { return x * 2; }
  static variable_list backward(AutogradContext*, const variable_list&) {
    throw std::out_of_range("the backward's own words");
  }
};

TEST(EngineCustomFunctions, OwnErrorsComeThrough) {
  expect_error_as_eager([] {
    const at::Tensor x = leaf({4});
    Throws::apply(x.exp()).sin().sum().backward();
    return Tensors{};
  });
}

TEST(EngineCustomFunctions, LeavesBeforeTheErrorHaveTheirGradients) {
  expect_as_eager([] {
    const at::Tensor x = leaf({4}), y = leaf({4});
    EXPECT_THROW((Throws::apply(x.exp()) * y).sum().backward(), std::out_of_range);
    return Tensors{x.grad(), y.grad()};
  });
}

struct TooFew : Function<TooFew> {
  static constexpr bool is_traceable = true;
  static at::Tensor forward(AutogradContext*, const at::Tensor& x, const at::Tensor& y) {
    return x + y;
  }
  static variable_list backward(AutogradContext*, const variable_list& grads) { return {grads[0]}; }
};

TEST(EngineCustomFunctions, WrongNumberOfGradientsThrowsAsEager) {
  expect_error_as_eager([] {
    const at::Tensor x = leaf({4});
    TooFew::apply(x.exp(), x).sum().backward();
    return Tensors{};
  });
}

struct SavesItsResult : Function<SavesItsResult> {
  static constexpr bool is_traceable = true;
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x) {
    const at::Tensor y = x.exp();
    context->save_for_backward({y});
    return y;
  }
  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    return {grads[0] * context->get_saved_variables()[0]};
  }
};

TEST(EngineCustomFunctions, ResultsThatAreSaved) {
  expect_parts(
      [] {
        const at::Tensor x = leaf({4});
        SavesItsResult::apply(SavesItsResult::apply(x) * 0.1).sum().backward();
        return Tensors{x.grad()};
      },
      1);
}

TEST(EngineCustomFunctions, SavedResultThatIsWrittenThrowsAsEager) {
  expect_error_as_eager([] {
    const at::Tensor x = leaf({4});
    const at::Tensor y = SavesItsResult::apply(x);
    const at::Tensor loss = (y * 2).sum();
    y.mul_(2);
    loss.backward();
    return Tensors{};
  });
}

struct HiddenTensor : Function<HiddenTensor> {
  static constexpr bool is_traceable = true;
  static inline at::Tensor hidden;
  static at::Tensor forward(AutogradContext*, const at::Tensor& x) { return x * 2; }
  static variable_list backward(AutogradContext*, const variable_list& grads) {
    return {grads[0] * hidden};
  }
};

TEST(EngineCustomFunctions, TensorsThatAreNotToldOfAreReadEachTime) {
  const auto program = [] {
    const at::Tensor x = leaf({4});
    HiddenTensor::apply(x.exp()).sin().sum().backward();
    return Tensors{x.grad()};
  };
  for (double value : {2.0, 4.0}) {
    HiddenTensor::hidden = torch::full({4}, value);
    expect_as_eager(program);
  }
  compiled_autograd::Enable on;
  Tensors all;
  for (double value : {2.0, 4.0}) {
    torch::manual_seed(0);
    HiddenTensor::hidden = torch::full({4}, value);
    all.push_back(program()[0]);
  }
  EXPECT_TRUE(same_values(all[0] * 2, all[1]));
  HiddenTensor::hidden.reset();
}

struct CallsAnother : Function<CallsAnother> {
  static constexpr bool is_traceable = true;
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x) {
    context->save_for_backward({x});
    return x.sin();
  }
  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    return {PassThrough::apply(grads[0]) *
            InPlace<true>::apply(context->get_saved_variables()[0].cos())};
  }
};

TEST(EngineCustomFunctions, ThatCallOthersInTheirBackward) {
  expect_as_eager([] {
    const at::Tensor x = leaf({4});
    CallsAnother::apply(x.exp()).sum().backward();
    return Tensors{x.grad()};
  });
}

struct Noisy : Function<Noisy> {
  static constexpr bool is_traceable = true;
  static at::Tensor forward(AutogradContext*, const at::Tensor& x) { return x * 2; }
  static variable_list backward(AutogradContext*, const variable_list& grads) {
    return {grads[0] + at::rand_like(grads[0])};
  }
};

TEST(EngineCustomFunctions, RandomNumbersInABackward) {
  expect_as_eager([] {
    const at::Tensor x = leaf({4}), y = leaf({4});
    (Noisy::apply(x.exp()) * Noisy::apply(y).sin()).sum().backward();
    return Tensors{x.grad(), y.grad(), torch::randn({3})};
  });
}

struct AsksWhatIsNeeded : Function<AsksWhatIsNeeded> {
  static constexpr bool is_traceable = true;
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& y) {
    context->save_for_backward({x, y});
    return x * y;
  }
  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    const auto saved = context->get_saved_variables();
    variable_list results(2);
    for (size_t i = 0; i < 2; ++i) {
      if (context->needs_input_grad(i)) results[i] = grads[0] * saved[1 - i];
    }
    return results;
  }
};

TEST(EngineCustomFunctions, AskWhichGradientsAreNeeded) {
  const auto program = [](bool first, bool second) {
    return [first, second] {
      const at::Tensor x = torch::randn({4}).requires_grad_(first);
      const at::Tensor y = torch::randn({4}).requires_grad_(second);
      AsksWhatIsNeeded::apply(x, y).sin().sum().backward();
      return Tensors{x.grad(), y.grad()};
    };
  };
  expect_parts(program(true, true), 1);
  expect_parts(program(true, false), 1);
  expect_parts(program(false, true), 1);
}

TEST(EngineCustomFunctions, ChosenInputsBehindAFunction) {
  expect_as_eager([] {
    const at::Tensor x = leaf({4}), y = leaf({4});
    const at::Tensor a = x.exp(), b = y.exp();
    variable_list grads = torch::autograd::grad({AsksWhatIsNeeded::apply(a, b).sum()}, {b, y});
    grads.push_back(x.grad());
    return grads;
  });
}

struct Lists : Function<Lists> {
  static constexpr bool is_traceable = true;
  static variable_list forward(AutogradContext* context, at::TensorList xs,
                               const std::optional<at::Tensor>& bias) {
    context->saved_data["count"] = static_cast<int64_t>(xs.size());
    at::Tensor sum = torch::stack(xs).sum(0);
    return {bias ? sum + *bias : sum};
  }
  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    const auto count = static_cast<size_t>(context->saved_data["count"].toInt());
    variable_list results(count, grads[0]);
    results.push_back(grads[0] * 2);
    return results;
  }
};

TEST(EngineCustomFunctions, ListsAndOptionalArguments) {
  expect_as_eager([] {
    const at::Tensor x = leaf({4}), y = leaf({4}), b = leaf({4});
    const Tensors list{x, y.exp(), x};
    Lists::apply(at::TensorList(list), std::optional<at::Tensor>(b))[0].sin().sum().backward();
    return Tensors{x.grad(), y.grad(), b.grad()};
  });
}

/// Holds more constants than LibTorch counts.
struct LongNames : Function<LongNames> {
  static constexpr bool is_traceable = true;
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x,
                            const std::string& last) {
    c10::List<std::string> names;
    for (int i = 0; i < 100; ++i) names.push_back(std::string(1000, 'a'));
    names.push_back(last);
    context->saved_data["names"] = names;
    return x * 2;
  }
  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    const auto names = context->saved_data["names"].toList();
    return {grads[0] * static_cast<int64_t>(names.get(100).toStringRef().size()), at::Tensor()};
  }
};

TEST(EngineCustomFunctions, KeysOfAnyLength) {
  const auto stats = expect_as_eager([] {
    Tensors all;
    for (const char* last : {"one", "three", "one"}) {
      const at::Tensor x = leaf({4});
      LongNames::apply(x.exp(), last).sum().backward();
      all.push_back(x.grad());
    }
    return all;
  });
  EXPECT_EQ(stats.captures, 2u);
  EXPECT_EQ(stats.eager_nodes, 0u) << test::all_reasons();
}

/// Writes to what it saved, which graphs must not; nothing says so before all is traced.
struct WritesToSaved : Function<WritesToSaved> {
  static constexpr bool is_traceable = true;
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x) {
    context->save_for_backward({x.detach().clone()});
    return x * 2;
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    at::Tensor saved = context->get_saved_variables()[0];
    return {gradients[0] * saved.mul_(2)};
  }
};

struct Called : Function<Called> {
  static at::Tensor forward(AutogradContext*, const at::Tensor& x) { return x * 2; }
  static variable_list backward(AutogradContext*, variable_list gradients) {
    return {gradients[0] * 2};
  }
};

TEST(EngineFunctions, OneThatSpoilsTheWholeIsFoundByHalving) {
  const auto counted = test::expect_as_eager([] {
    const at::Tensor x = leaf({4});
    at::Tensor y = x;
    for (int i = 0; i < 6; ++i) y = y.sin() * x;
    y = WritesToSaved::apply(y);
    for (int i = 0; i < 5; ++i) y = y.cos() + x;
    y.sum().backward();
    return std::vector<at::Tensor>{x.grad()};
  });
  EXPECT_EQ(counted.eager_nodes, 3u) << test::all_reasons();  // that one, in each of three runs
  EXPECT_EQ(counted.cuts, 3u);
  EXPECT_EQ(counted.compiles, 2u);
  EXPECT_NE(test::all_reasons().find("writes to what it holds"), std::string::npos)
      << test::all_reasons();
}

TEST(EngineCustomFunctions, ACheckpointAroundOneRunsAgainOnce) {
  int runs = 0;
  const auto program = [&runs] {
    const at::Tensor x = leaf({4});
    const auto region = [&runs](const at::Tensor& y) {
      ++runs;
      return Called::apply(y.sin()).tanh() * y;
    };
    checkpoint(CheckpointPolicy::recompute_everything(), region, x).sum().backward();
    return Tensors{x.grad()};
  };
  torch::manual_seed(1);
  const Tensors expected = program();
  EXPECT_EQ(std::exchange(runs, 0), 2);
  compiled_autograd::reset();
  const compiled_autograd::Enable on;
  for (int call = 0; call < 3; ++call) {
    torch::manual_seed(1);
    EXPECT_EQ(tensor_difference(expected[0], program()[0]), "");
    EXPECT_EQ(std::exchange(runs, 0), 2) << call;
  }
  EXPECT_EQ(compiled_autograd::stats().cache_hits, 2u);
}

}  // namespace custom_functions_test
}  // namespace ahead
