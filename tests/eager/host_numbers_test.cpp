#include <gtest/gtest.h>
#include <torch/torch.h>

#include <memory>

#include "ahead/ahead.h"
#include "eager/harness.h"

/// Numbers of the host's, announced by HostState, that hits read anew and commit.
namespace ahead::test {
namespace host_numbers_test {

/// A temperature that falls with each use.
class Temperature : public HostState {
 public:
  bool guard() const override { return is_on; }
  std::vector<at::Tensor> inputs(size_t ahead) const override {
    return {at::full({}, start / static_cast<double>(1 + uses + static_cast<int64_t>(ahead)))};
  }
  void commit() override { ++uses; }

  double start = 2;
  int64_t uses = 0;
  bool is_on = true;
};

TEST(HostNumbers, TemperatureFallsInHits) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    const auto temperature = std::make_shared<Temperature>();
    auto soften = wrap(
        [&](const at::Tensor& x) { return torch::softmax(x / take_next(temperature)[0], -1); });
    for (int call = 0; call < 24; ++call) {
      if (call == 13) temperature->start = 7;
      log("result", soften(at::randn({3, 4})));
      log("uses", static_cast<double>(temperature->uses));
    }
  });
  expect_doubling(outcome);
}

TEST(HostNumbers, TakenTwiceInACall) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    const auto temperature = std::make_shared<Temperature>();
    auto f = wrap([&](const at::Tensor& x) {
      const at::Tensor first = x * take_next(temperature)[0];
      return first + take_next(temperature)[0];
    });
    for (int call = 0; call < 24; ++call) {
      log("result", f(at::randn({3})));
      log("uses", static_cast<double>(temperature->uses));
    }
  });
  expect_doubling(outcome);
}

/// What a backward needs of a number is that of its own call.
TEST(HostNumbers, BackwardsOfSeveralCalls) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    const auto temperature = std::make_shared<Temperature>();
    const at::Tensor weight = leaf({4});
    auto f = wrap(
        [&](const at::Tensor& x) { return (x * weight / take_next(temperature)[0]).tanh().sum(); });
    for (int call = 0; call < 12; ++call) {
      const at::Tensor first = f(at::randn({4})), second = f(at::randn({4}));
      first.backward();
      second.backward();
      log("weight", weight);
    }
  });
  expect_hits(outcome);
}

TEST(HostNumbers, GuardsSendCallsBack) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    const auto temperature = std::make_shared<Temperature>();
    auto f = wrap([&](const at::Tensor& x) {
      const at::Tensor number = take_next(temperature)[0];
      return temperature->is_on ? x * number : x - number;
    });
    for (int call = 0; call < 40; ++call) {
      temperature->is_on = call % 12 < 9;
      log("result", f(at::randn({3})));
      log("uses", static_cast<double>(temperature->uses));
    }
  });
  EXPECT_GT(outcome.cache_hits, 5u) << outcome.str();
  EXPECT_EQ(outcome.eager_calls, 0u) << outcome.str();
}

TEST(HostNumbers, StatesThatAreGone) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    auto temperature = std::make_shared<Temperature>();
    auto f = wrap([&](const at::Tensor& x) { return x * take_next(temperature)[0]; });
    for (int call = 0; call < 24; ++call) {
      if (call == 9) temperature = std::make_shared<Temperature>();
      log("result", f(at::randn({3})));
    }
  });
  expect_hits(outcome);
}

/// A call that is left because of a value has not used the numbers.
TEST(HostNumbers, ValueMissesUseNothing) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    const auto temperature = std::make_shared<Temperature>();
    auto f = wrap([&](const at::Tensor& x) {
      const at::Tensor y = x * take_next(temperature)[0];
      return (x.sum() > 0).item<bool>() ? y : -y + 1;
    });
    for (int call = 0; call < 40; ++call) {
      log("result", f(at::full({2}, call % 3 == 0 ? -1.0 : 1.0)));
      log("uses", static_cast<double>(temperature->uses));
    }
  });
  expect_hits(outcome);
}

TEST(HostNumbers, CommittedByNobodyElseInside) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    const auto temperature = std::make_shared<Temperature>();
    auto f = wrap([&](const at::Tensor& x) {
      const at::Tensor y = x * take_next(temperature)[0];
      ++temperature->uses;
      return y;
    });
    for (int call = 0; call < 16; ++call) log("result", f(at::randn({3})));
  });
  expect_eager(outcome);
}

TEST(HostNumbers, HooksBesideThem) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    const auto temperature = std::make_shared<Temperature>();
    const at::Tensor weight = leaf({4});
    auto f = wrap([&](const at::Tensor& x) {
      const at::Tensor y = (x * weight).tanh();
      y.register_hook([](const at::Tensor& gradient) { return gradient * 2; });
      return (y * take_next(temperature)[0]).sum();
    });
    for (int call = 0; call < 24; ++call) {
      f(at::randn({4})).backward();
      log("weight", weight);
      log("uses", static_cast<double>(temperature->uses));
    }
  });
  expect_hits(outcome);
}

TEST(HostNumbers, WithoutACompiledFunction) {
  const auto temperature = std::make_shared<Temperature>();
  EXPECT_EQ(take_next(temperature)[0].item<double>(), 2);
  EXPECT_EQ(take_next(temperature)[0].item<double>(), 1);
  EXPECT_EQ(temperature->uses, 2);
}

}  // namespace host_numbers_test
}  // namespace ahead::test
