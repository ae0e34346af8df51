#include <gtest/gtest.h>
#include <torch/torch.h>

#include <deque>
#include <map>

#include "ahead/ahead.h"
#include "eager/harness.h"

/// Tensors that a function keeps from call to call.
namespace ahead::test {
namespace members_test {

using Tensors = std::vector<at::Tensor>;

/// Trains a module on tensors of these sizes, eagerly and compiled; shows its results, what it
/// keeps and its parameters. The loss is `loss_of(result, net)`.
template <class Net, class LossOf, class Kept>
void expect_trains(at::IntArrayRef sizes, const LossOf& loss_of, const Kept& kept) {
  expect_hits(like_eager([&](auto& wrap, Log& log) {
    auto net = std::make_shared<Net>();
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    auto forward = wrap(net);
    for (int call = 0; call < 24; ++call) {
      train_step(optimizer, [&] {
        const at::Tensor result = forward(at::randn(sizes));
        log("result", result);
        return loss_of(result, *net);
      });
      log("kept", kept(*net));
      log("net", *net);
    }
    forward.explain(at::randn(sizes));
  }));
}

struct Recurrent : torch::nn::Module {
  Recurrent()
      : in(register_module("in", torch::nn::Linear(3, 4))),
        back(register_module("back", torch::nn::Linear(4, 4))),
        h(at::zeros({2, 4})) {}
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor next = torch::tanh(in->forward(x) + back->forward(h));
    h = is_detached ? next.detach() : next;
    return next;
  }
  torch::nn::Linear in, back;
  at::Tensor h;
  bool is_detached = true;
};

/// What is read out of a hidden state.
struct Reader : torch::nn::Module {
  Reader()
      : recurrent(register_module("recurrent", std::make_shared<Recurrent>())),
        out(register_module("out", torch::nn::Linear(4, 2))) {
    recurrent->is_detached = false;
  }
  at::Tensor forward(const at::Tensor& x) { return out->forward(recurrent->forward(x)); }
  std::shared_ptr<Recurrent> recurrent;
  torch::nn::Linear out;
};

TEST(Members, HiddenStateDetached) {
  expect_trains<Recurrent>(
      {2, 3}, [](const at::Tensor& result, const Recurrent&) { return result.pow(2).sum(); },
      [](const Recurrent& net) { return Tensors{net.h}; });
}

/// Backpropagation through eight calls at a time.
TEST(Members, HiddenStateWithHistory) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    auto net = std::make_shared<Reader>();
    auto forward = wrap(net);
    for (int sequence = 0; sequence < 5; ++sequence) {
      at::Tensor loss = at::zeros({});
      for (int step = 0; step < 8; ++step) {
        loss = loss + forward(at::randn({2, 3})).pow(2).sum();
        log("h", net->recurrent->h);
      }
      loss.backward();
      net->recurrent->h = net->recurrent->h.detach();
      log("net", *net);
    }
    forward.explain(at::randn({2, 3}));
  });
  expect_hits(outcome);
}

/// The state is the result itself, which the graph of the loss holds.
TEST(Members, HiddenStateThatTheLossHolds) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    auto net = std::make_shared<Recurrent>();
    net->is_detached = false;
    auto forward = wrap(net);
    for (int sequence = 0; sequence < 5; ++sequence) {
      at::Tensor loss = at::zeros({});
      for (int step = 0; step < 8; ++step) {
        loss = loss + forward(at::randn({2, 3})).pow(2).sum();
        log("h", net->h);
      }
      loss.backward();
      net->h = net->h.detach();
      log("net", *net);
    }
  });
  expect_hits(outcome);
}

/// The state of a lambda lies behind a reference, where no byte of the closure shows it.
TEST(Members, HiddenStateBehindAReference) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    auto cell = torch::nn::LSTMCell(3, 4);
    std::tuple<at::Tensor, at::Tensor> state(at::zeros({2, 4}), at::zeros({2, 4}));
    auto step = wrap([&](const at::Tensor& x) {
      auto [h, c] = cell->forward(x, state);
      state = std::make_tuple(h.detach(), c.detach());
      return h.mean();
    });
    for (int call = 0; call < 24; ++call) {
      const at::Tensor loss = step(at::randn({2, 3}));
      loss.backward();
      log("loss", loss);
      log("state", {std::get<0>(state), std::get<1>(state)});
    }
    log("cell", *cell);
  });
  expect_hits(outcome);
}

TEST(Members, SomebodyHoldsEveryOldState) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    auto net = std::make_shared<Recurrent>();
    std::vector<at::Tensor> history;
    auto forward = wrap(net);
    for (int call = 0; call < 24; ++call) {
      log("result", forward(at::randn({2, 3})));
      history.push_back(net->h);
    }
    log("history", history);
  });
  expect_hits(outcome);
}

TEST(Members, SomebodyHoldsOneOldState) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    auto net = std::make_shared<Recurrent>();
    at::Tensor held, view;
    auto forward = wrap(net);
    for (int call = 0; call < 32; ++call) {
      log("result", forward(at::randn({2, 3})));
      if (call == 10) held = net->h;
      if (call == 20) view = net->h.slice(0, 0, 1);
      log("held", held);
      log("view", view);
      log("h", net->h);
    }
  });
  expect_some_hits(outcome);
}

/// Noise for a variational autoencoder, whose loss needs what the forward kept.
struct Variational : torch::nn::Module {
  Variational()
      : encoder(register_module("encoder", torch::nn::Linear(5, 4))),
        decoder(register_module("decoder", torch::nn::Linear(2, 5))) {}
  at::Tensor forward(const at::Tensor& x) {
    const auto halves = encoder->forward(x).chunk(2, 1);
    mu = halves[0];
    logvar = halves[1];
    return decoder->forward(mu + torch::randn_like(mu) * (0.5 * logvar).exp());
  }
  torch::nn::Linear encoder, decoder;
  at::Tensor mu, logvar;
};

TEST(Members, MeanAndVarianceForTheLoss) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    auto net = std::make_shared<Variational>();
    torch::optim::Adam optimizer(net->parameters(), 0.01);
    auto forward = wrap(net);
    for (int call = 0; call < 24; ++call) {
      const at::Tensor x = at::randn({3, 5});
      const at::Tensor guess = forward(x);
      const at::Tensor divergence =
          -0.5 * torch::sum(1 + net->logvar - net->mu.pow(2) - net->logvar.exp());
      const at::Tensor loss = torch::mse_loss(guess, x) + divergence;
      train_step(optimizer, loss);
      log("loss", loss);
      log("kept", {net->mu, net->logvar});
    }
    log("net", *net);
  });
  expect_hits(outcome);
}

struct Averaging : torch::nn::Module {
  Averaging() : fc(register_module("fc", torch::nn::Linear(3, 3))), mean(at::zeros({3})) {}
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor y = fc->forward(x);
    mean = 0.9 * mean + 0.1 * y.detach().mean(0);
    return y - mean;
  }
  torch::nn::Linear fc;
  at::Tensor mean;
};

TEST(Members, MovingAverageOfActivations) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    auto net = std::make_shared<Averaging>();
    auto forward = wrap(net);
    for (int call = 0; call < 24; ++call) {
      const at::Tensor result = forward(at::randn({2, 3}));
      result.sum().backward();
      log("result", result);
      log("mean", net->mean);
    }
    log("net", *net);
  });
  expect_hits(outcome);
}

TEST(Members, MovingAverageOfWeightsInPlace) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    auto net = torch::nn::Linear(3, 2), average = torch::nn::Linear(3, 2);
    auto step = wrap([&](const at::Tensor& x) {
      const at::Tensor loss = net->forward(x).sum() - average->forward(x).detach().sum();
      torch::NoGradGuard no_grad;
      const auto from = net->parameters(), to = average->parameters();
      for (size_t i = 0; i < from.size(); ++i) to[i].mul_(0.99).add_(from[i], 0.01);
      return loss;
    });
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    for (int call = 0; call < 24; ++call) {
      const at::Tensor loss = train_step(optimizer, [&] { return step(at::randn({2, 3})); });
      log("loss", loss);
      log("average", *average);
    }
    log("net", *net);
  });
  expect_doubling(outcome);
}

/// A weight that is made anew in each call, as weight normalisation does.
struct Normalised : torch::nn::Module {
  Normalised()
      : direction(register_parameter("direction", at::randn({2, 3}))),
        length(register_parameter("length", at::ones({2, 1}))) {}
  at::Tensor forward(const at::Tensor& x) {
    weight = direction * (length / direction.norm(2, {1}, /*keepdim=*/true));
    return torch::linear(x, weight);
  }
  at::Tensor direction, length, weight;
};

TEST(Members, WeightsMadeAnewInEachCall) {
  expect_trains<Normalised>(
      {4, 3},
      [](const at::Tensor& result, const Normalised& net) {
        return result.sum() + net.weight.pow(2).sum();
      },
      [](const Normalised& net) { return Tensors{net.weight}; });
}

/// Flow++'s and Glow's ActNorm.
struct DataInitialised : torch::nn::Module {
  DataInitialised()
      : scale(register_parameter("scale", at::ones({3}))),
        initialised(register_buffer("initialised", at::zeros({}, at::kBool))) {}
  at::Tensor forward(const at::Tensor& x) {
    if (!initialised.item<bool>()) {
      scale.set_data(1 / (x.detach().std(0) + 1e-6));
      initialised.fill_(true);
    }
    return x * scale;
  }
  at::Tensor scale, initialised;
};

TEST(Members, ParametersInitialisedFromTheFirstBatch) {
  expect_trains<DataInitialised>(
      {4, 3}, [](const at::Tensor& result, const DataInitialised&) { return result.pow(2).sum(); },
      [](const DataInitialised& net) { return Tensors{net.scale}; });
}

/// PixelCNN's convolution.
struct MaskedConvolution : torch::nn::Module {
  MaskedConvolution()
      : conv(register_module("conv",
                             torch::nn::Conv2d(torch::nn::Conv2dOptions(2, 2, 3).padding(1)))),
        mask(register_buffer("mask", at::ones({2, 2, 3, 3}).tril_())) {}
  at::Tensor forward(const at::Tensor& x) {
    conv->weight.data().mul_(mask);
    return conv->forward(x);
  }
  torch::nn::Conv2d conv;
  at::Tensor mask;
};

TEST(Members, WeightsMaskedInPlace) {
  expect_trains<MaskedConvolution>(
      {1, 2, 4, 4},
      [](const at::Tensor& result, const MaskedConvolution&) { return result.pow(2).mean(); },
      [](const MaskedConvolution& net) { return Tensors{net.conv->weight}; });
}

TEST(Members, CodebookUpdatedThroughData) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    const at::Tensor codebook = at::randn({4, 3}).requires_grad_(false);
    auto quantise = wrap([&](const at::Tensor& x) {
      const at::Tensor nearest = torch::cdist(x, codebook).argmin(1);
      const at::Tensor chosen = torch::one_hot(nearest, 4).to(x.dtype());
      const at::Tensor result = chosen.matmul(codebook);
      codebook.data().mul_(0.9).add_(0.1 * chosen.t().matmul(x.detach()));
      return x + (result - x).detach();
    });
    for (int call = 0; call < 24; ++call) {
      const at::Tensor x = leaf({5, 3});
      const at::Tensor result = quantise(x);
      result.pow(2).sum().backward();
      log("result", result);
      log("x", x);
      log("codebook", codebook);
    }
  });
  expect_hits(outcome);
}

TEST(Members, CacheFilledOnFirstUse) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    at::Tensor positions;
    auto add_positions = wrap([&](const at::Tensor& x) {
      if (!positions.defined()) positions = torch::arange(x.size(1)).to(x.dtype()).div_(10).sin_();
      return x + positions;
    });
    for (int call = 0; call < 24; ++call) log("result", add_positions(at::randn({2, 6})));
    log("positions", positions);
  });
  expect_hits(outcome);
}

TEST(Members, CacheForEachSize) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    std::map<int64_t, at::Tensor> masks;
    auto masked = wrap([&](const at::Tensor& x) {
      at::Tensor& mask = masks[x.size(0)];
      if (!mask.defined()) mask = torch::ones({x.size(0), x.size(0)}).tril_();
      return x * mask;
    });
    for (int call = 0; call < 30; ++call) {
      const int64_t size = 3 + call % 2;
      log("result", masked(at::randn({size, size})));
    }
    for (const auto& [size, mask] : masks) log("mask", mask);
  });
  expect_settled(outcome);
}

TEST(Members, CacheThatGrows) {
  like_eager([](auto& wrap, Log& log) {
    at::Tensor keys = at::zeros({0, 3});
    auto attend = wrap([&](const at::Tensor& x) {
      keys = torch::cat({keys, x});
      return x.matmul(keys.t()).softmax(1).matmul(keys);
    });
    for (int call = 0; call < 20; ++call) {
      log("result", attend(at::randn({1, 3})));
      log("keys", keys);
    }
  });
}

TEST(Members, LogOfTensors) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    std::vector<at::Tensor> kept;
    auto function = wrap([&](const at::Tensor& x) {
      const at::Tensor y = torch::tanh(x * 2);
      kept.push_back(y.detach());
      return y;
    });
    for (int call = 0; call < 20; ++call) log("result", function(at::randn({3})));
    log("kept", kept);
  });
  expect_eager(outcome);
}

/// The last few, the oldest of which goes.
TEST(Members, WindowOfTensors) {
  like_eager([](auto& wrap, Log& log) {
    std::deque<at::Tensor> window;
    auto smooth = wrap([&](const at::Tensor& x) {
      window.push_back(x * 0.5);
      if (window.size() > 3) window.pop_front();
      at::Tensor sum = at::zeros({3});
      for (const at::Tensor& each : window) sum = sum + each;
      return sum;
    });
    for (int call = 0; call < 20; ++call) log("result", smooth(at::randn({3})));
    log("window", std::vector<at::Tensor>(window.begin(), window.end()));
  });
}

TEST(Members, TheArgumentIsKept) {
  like_eager([](auto& wrap, Log& log) {
    at::Tensor last = at::zeros({3});
    auto change = wrap([&](const at::Tensor& x) {
      const at::Tensor difference = x - last;
      last = x;
      return difference;
    });
    for (int call = 0; call < 20; ++call) {
      const at::Tensor x = at::randn({3});
      log("change", change(x));
      log("is kept", last.is_same(x) ? 1 : 0);
    }
  });
}

/// A call that runs eagerly, or that throws, stores a new tensor as well; the one that a program
/// knows may still be there, held by somebody else.
TEST(Members, StoredByOtherCallsWhileTheOldOneIsHeld) {
  for (const bool is_thrown : {false, true}) {
    const Outcome outcome = like_eager([&](auto& wrap, Log& log) {
      at::Tensor member = at::rand({4}), held;
      auto store = wrap([&](const at::Tensor& x) {
        member = x.detach().mean(0);
        if (x.requires_grad()) x.remove_hook(x.register_hook([](const at::Tensor&) {}));
        if (is_thrown && (x.sum() > 100).template item<bool>())
          throw std::runtime_error("too much");
      });
      for (int call = 0; call < 32; ++call) {
        const bool is_other = call % 6 == 5;
        at::Tensor x = at::rand({3, 4});
        if (is_other && is_thrown) x = x + 100;
        if (is_other && !is_thrown) x.set_requires_grad(true);
        if (is_other) held = member;
        try {
          store(x);
        } catch (const std::runtime_error& error) {
          log("error", std::string(error.what()));
        }
        log("member", member);
        log("held", held);
      }
    });
    EXPECT_GT(outcome.cache_hits, 0u);
  }
}

/// What one branch replaces, the program of the other one has to look for.
TEST(Members, ReplacedInTheOtherBranchWhileTheOldOneIsHeld) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    at::Tensor last = at::rand({4}), before_last = at::rand({4});
    auto f = wrap([&](const at::Tensor& x) {
      if ((x.sum() > 0).template item<bool>()) return x * last;
      before_last = last;
      last = x.mean(0);
      return x + 1;
    });
    for (int call = 0; call < 24; ++call) {
      log("result", f((call % 6 == 5 ? -1 : 1) * at::rand({3, 4})));
      log("last", last);
      log("before last", before_last);
    }
  });
  EXPECT_GT(outcome.cache_hits, 0u);
}

/// What is stored is also returned: one tensor, as its writes show.
TEST(Members, StoredAndReturned) {
  like_eager([](auto& wrap, Log& log) {
    const at::Tensor weight = leaf({3});
    at::Tensor kept;
    auto layer = wrap([&](const at::Tensor& x) {
      kept = x * weight;
      return kept;
    });
    for (int call = 0; call < 24; ++call) {
      {
        const at::Tensor result = layer(at::randn({2, 3}));
        log("same", result.is_same(kept));
        result.mul_(2);
      }
      kept.sum().backward();
      log("weight", weight);
    }
  });
}

}  // namespace members_test
}  // namespace ahead::test
