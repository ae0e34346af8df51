#include <gtest/gtest.h>
#include <torch/torch.h>

#include <array>
#include <optional>

#include "ahead/ahead.h"
#include "eager/harness.h"

/// Members that a function assigns to in every call, while others hold what they were before.
namespace ahead::test {
namespace state_test {

void expect_mostly_hits(const Outcome& outcome) {
  EXPECT_GE(3 * outcome.cache_hits, 2 * outcome.calls) << outcome.str();
  EXPECT_EQ(outcome.eager_calls, 0u) << outcome.str();
}

struct Cell : torch::nn::Module {
  Cell()
      : in(register_module("in", torch::nn::Linear(3, 4))),
        back(register_module("back", torch::nn::Linear(4, 4))),
        h(at::zeros({2, 4})) {}
  at::Tensor forward(const at::Tensor& x, bool is_detached = false) {
    if (is_detached) h = h.detach();
    h = torch::tanh(in->forward(x) + back->forward(h));
    return h;
  }
  torch::nn::Linear in, back;
  at::Tensor h;
};

/// Four steps at a time, the first of which detaches the state itself.
TEST(State, TruncatedInside) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    auto net = std::make_shared<Cell>();
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    auto forward = wrap(net);
    for (int sequence = 0; sequence < 20; ++sequence) {
      at::Tensor loss = at::zeros({});
      for (int step = 0; step < 4; ++step) {
        const at::Tensor result = forward(at::randn({2, 3}), step == 0);
        log("is the member", result.is_same(net->h) ? 1 : 0);
        loss = loss + result.pow(2).sum();
      }
      train_step(optimizer, loss);
      log("h", net->h);
      log("net", *net);
    }
  });
  expect_mostly_hits(outcome);
}

TEST(State, TruncatedOutside) {
  for (const bool is_in_place : {false, true}) {
    const Outcome outcome = like_eager([&](auto& wrap, Log& log) {
      auto net = std::make_shared<Cell>();
      auto forward = wrap(net);
      for (int sequence = 0; sequence < 20; ++sequence) {
        at::Tensor loss = at::zeros({});
        for (int step = 0; step < 4; ++step) {
          loss = loss + forward(at::randn({2, 3}), false).pow(2).sum();
          log("h", net->h);
        }
        loss.backward();
        if (is_in_place) {
          net->h.detach_();
        } else {
          net->h = net->h.detach();
        }
        log("net", *net);
      }
    });
    expect_mostly_hits(outcome);
  }
}

TEST(State, UnrolledResultsAreKept) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    auto net = std::make_shared<Cell>();
    auto forward = wrap(net);
    for (int sequence = 0; sequence < 15; ++sequence) {
      net->h = at::zeros({2, 4});
      std::vector<at::Tensor> outs;
      for (int step = 0; step < 5; ++step) outs.push_back(forward(at::randn({2, 3}), false));
      log("is the member", outs.back().is_same(net->h) ? 1 : 0);
      log("outs", outs);
      torch::stack(outs).pow(2).mean().backward();
      log("net", *net);
    }
  });
  expect_mostly_hits(outcome);
}

struct Average : torch::nn::Module {
  Average() : fc(register_module("fc", torch::nn::Linear(3, 3))), mean(at::zeros({3})) {}
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor y = fc->forward(x);
    if (is_training()) mean = 0.9 * mean + 0.1 * y.detach().mean(0);
    return y - mean;
  }
  torch::nn::Linear fc;
  at::Tensor mean;
};

TEST(State, SnapshotsOfAnAverage) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    auto net = std::make_shared<Average>();
    std::vector<at::Tensor> snapshots;
    auto forward = wrap(net);
    for (int call = 0; call < 40; ++call) {
      forward(at::randn({2, 3})).sum().backward();
      if (call % 3 != 1) snapshots.push_back(net->mean);
      log("version", static_cast<double>(net->mean._version()));
    }
    log("snapshots", snapshots);
    log("net", *net);
  });
  expect_mostly_hits(outcome);
}

TEST(State, TrainAndEvalInTurns) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    auto net = std::make_shared<Average>();
    auto forward = wrap(net);
    for (int call = 0; call < 60; ++call) {
      net->train(call % 3 != 2);
      log("result", forward(at::randn({2, 3})));
      log("mean", net->mean);
    }
  });
  expect_mostly_hits(outcome);
}

/// The average is known to be assigned to only after programs that read it were made.
TEST(State, EvalForLongThenTrain) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    auto net = std::make_shared<Average>();
    auto forward = wrap(net);
    for (int call = 0; call < 60; ++call) {
      net->train(call > 10 && call % 2 == 0);
      log("result", forward(at::randn({2, 3})));
      log("mean", net->mean);
    }
  });
  expect_mostly_hits(outcome);
}

struct Variational : torch::nn::Module {
  Variational()
      : encoder(register_module("encoder", torch::nn::Linear(5, 4))),
        decoder(register_module("decoder", torch::nn::Linear(2, 5))) {}
  at::Tensor forward(const at::Tensor& x) {
    const auto halves = encoder->forward(x).chunk(2, 1);
    mu = halves[0];
    spread = (0.5 * halves[1]).exp();
    return decoder->forward(mu + torch::randn_like(mu) * spread);
  }
  torch::nn::Linear encoder, decoder;
  at::Tensor mu, spread;
};

/// The losses of two calls are one, and the last batch is smaller.
TEST(State, MomentsForTheLossOfTwoCalls) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    auto net = std::make_shared<Variational>();
    torch::optim::SGD optimizer(net->parameters(), 0.01);
    auto forward = wrap(net);
    for (int epoch = 0; epoch < 15; ++epoch) {
      at::Tensor loss = at::zeros({});
      for (const int64_t size : {8, 8, 8, 5}) {
        const at::Tensor x = at::randn({size, 5});
        const at::Tensor guess = forward(x);
        loss = loss + torch::mse_loss(guess, x) + net->mu.pow(2).sum() +
               (net->spread - net->spread.log()).sum();
        log("moments", {net->mu, net->spread});
      }
      train_step(optimizer, loss);
      log("net", *net);
    }
  });
  expect_mostly_hits(outcome);
}

struct Lstm : torch::nn::Module {
  Lstm()
      : cell(register_module("cell", torch::nn::LSTMCell(3, 4))),
        out(register_module("out", torch::nn::Linear(4, 1))) {}
  at::Tensor forward(const at::Tensor& x) {
    if (!h.defined()) {
      h = at::zeros({x.size(0), 4});
      c = at::zeros({x.size(0), 4});
    }
    std::tie(h, c) = cell->forward(x, std::make_tuple(h, c));
    return out->forward(h);
  }
  void start() {
    h.reset();
    c.reset();
  }
  torch::nn::LSTMCell cell;
  torch::nn::Linear out;
  at::Tensor h, c;
};

/// Two states, made on first use, for batches of which the last ones are smaller.
TEST(State, TwoStatesAndSmallerBatches) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    auto net = std::make_shared<Lstm>();
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    auto forward = wrap(net);
    for (int epoch = 0; epoch < 10; ++epoch) {
      for (const int64_t size : {8, 8, 8, 5}) {
        net->start();
        at::Tensor loss = at::zeros({});
        for (int step = 0; step < 3; ++step)
          loss = loss + forward(at::randn({size, 3})).pow(2).mean();
        train_step(optimizer, loss);
        log("states", {net->h, net->c});
      }
      log("net", *net);
    }
  });
  expect_mostly_hits(outcome);
}

/// A state of another size than the batch begins anew, which is decided by numbers of no operator.
struct Resized : torch::nn::Module {
  Resized() : fc(register_module("fc", torch::nn::Linear(3, 3))) {}
  at::Tensor forward(const at::Tensor& x) {
    if (!h.defined() || h.size(0) != x.size(0)) h = torch::zeros_like(x);
    h = torch::tanh(fc->forward(x) + h).detach();
    return h * 2;
  }
  torch::nn::Linear fc;
  at::Tensor h;
};

TEST(State, BeginsAnewForAnotherSize) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    auto net = std::make_shared<Resized>();
    auto forward = wrap(net);
    for (int call = 0; call < 100; ++call) {
      log("result", forward(at::randn({call % 5 < 3 ? 4 : 2, 3})));
      log("h", net->h);
    }
  });
  expect_mostly_hits(outcome);
}

TEST(State, OfALambda) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    auto fc = torch::nn::Linear(4, 4);
    std::vector<at::Tensor> outs;
    auto step = wrap([fc, h = at::zeros({2, 4})](const at::Tensor& x) mutable {
      h = torch::tanh(fc->forward(h) + x);
      return h;
    });
    for (int call = 0; call < 40; ++call) {
      outs.push_back(step(at::randn({2, 4})));
      if (call % 8 != 7) continue;
      log("outs", outs);
      torch::stack(outs).sum().backward({}, /*retain_graph=*/true);
      log("fc", *fc);
    }
  });
  expect_mostly_hits(outcome);
}

/// Where the state is cannot be told: its object becomes the next one, which calls that are
/// observed must not keep from happening.
TEST(State, BehindAReference) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    auto fc = torch::nn::Linear(4, 4), out = torch::nn::Linear(4, 2);
    at::Tensor h = at::zeros({2, 4});
    auto step = wrap([&](const at::Tensor& x) {
      h = torch::tanh(fc->forward(h) + x);
      return out->forward(h) * h.sum();
    });
    for (int sequence = 0; sequence < 16; ++sequence) {
      at::Tensor loss = at::zeros({});
      for (int call = 0; call < 6; ++call) {
        loss = loss + step(at::randn({2, 4})).pow(2).sum();
        log("h", h);
      }
      loss.backward();
      h.detach_();
      log("fc", *fc);
      log("out", *out);
    }
  });
  expect_hits(outcome);
}

/// While somebody else holds it, calls are observed.
TEST(State, BehindAReferenceWhileOthersHoldIt) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    auto fc = torch::nn::Linear(4, 4);
    at::Tensor h = at::zeros({2, 4}), held;
    auto step = wrap([&fc, &h](const at::Tensor& x) {
      h = torch::tanh(fc->forward(h) + x);
      return h.sum();
    });
    for (int sequence = 0; sequence < 16; ++sequence) {
      at::Tensor loss = at::zeros({});
      for (int call = 0; call < 4; ++call) {
        loss = loss + step(at::randn({2, 4}));
        log("h", h);
        log("held", held);
      }
      if (sequence % 5 == 4) held = h;
      loss.backward();
      h.detach_();
      log("fc", *fc);
    }
  });
  expect_some_hits(outcome);
}

/// The state before the last one is moved without being computed with.
struct Ring : torch::nn::Module {
  Ring()
      : fc(register_module("fc", torch::nn::Linear(3, 3))),
        last(at::zeros({2, 3})),
        before(at::zeros({2, 3})),
        oldest(at::zeros({2, 3})) {}
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor now = torch::tanh(fc->forward(x) + last - before);
    oldest = before;
    before = last;
    last = now;
    return now * 2;
  }
  torch::nn::Linear fc;
  at::Tensor last, before, oldest;
};

TEST(State, Ring) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    auto net = std::make_shared<Ring>();
    auto forward = wrap(net);
    for (int sequence = 0; sequence < 12; ++sequence) {
      at::Tensor loss = at::zeros({}), held;
      for (int call = 0; call < 5; ++call) {
        held = net->last;
        loss = loss + forward(at::randn({2, 3})).sum();
        log("is moved", held.is_same(net->before) ? 1 : 0);
        log("ring", {net->last, net->before, net->oldest});
      }
      loss.backward();
      for (at::Tensor* each : {&net->last, &net->before, &net->oldest}) *each = each->detach();
      log("net", *net);
    }
  });
  expect_mostly_hits(outcome);
}

/// With words that look like handles of tensors, as memory has them that nobody has written to yet.
struct RingWithLeftovers : Ring {
  std::array<const void*, 16> leftovers{};
};

TEST(State, RingBesideTheAddressOfAnArgument) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    auto net = std::make_shared<RingWithLeftovers>();
    auto forward = wrap(net);
    const at::Tensor first = at::randn({2, 3});
    net->leftovers[0] = first.unsafeGetTensorImpl();
    for (int call = 0; call < 60; ++call) {
      log("result", forward(call < 5 ? first : at::randn({2, 3})));
      log("ring", {net->last, net->before, net->oldest});
      if (call % 5 != 4) continue;
      for (at::Tensor* each : {&net->last, &net->before, &net->oldest}) *each = each->detach();
    }
  });
  expect_mostly_hits(outcome);
}

TEST(State, RingBesideAddressesThatAreUsedAgain) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    auto net = std::make_shared<RingWithLeftovers>();
    auto forward = wrap(net);
    for (int call = 0; call < 60; ++call) {
      if (call == 0) {
        std::vector<at::Tensor> freed;
        for (const void*& word : net->leftovers)
          word = freed.emplace_back(at::empty({2, 3})).unsafeGetTensorImpl();
      }
      log("result", forward(at::randn({2, 3})));
      log("ring", {net->last, net->before, net->oldest});
      if (call % 5 != 4) continue;
      for (at::Tensor* each : {&net->last, &net->before, &net->oldest}) *each = each->detach();
    }
  });
  expect_mostly_hits(outcome);
}

TEST(State, StepsAndSecondBackwardsBetween) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    auto net = std::make_shared<Cell>();
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    auto forward = wrap(net);
    for (int call = 0; call < 40; ++call) {
      const at::Tensor loss = forward(at::randn({2, 3}), true).pow(2).sum();
      optimizer.zero_grad();
      loss.backward({}, /*retain_graph=*/true);
      loss.backward();
      optimizer.step();
      log("h", net->h);
      log("net", *net);
    }
  });
  expect_mostly_hits(outcome);
}

/// At the beginning of each sequence the state is a tensor that the module has besides.
struct Started : torch::nn::Module {
  Started()
      : fc(register_module("fc", torch::nn::Linear(3, 3))),
        start(register_buffer("start", at::randn({2, 3}))),
        h(start) {}
  at::Tensor forward(const at::Tensor& x) {
    h = torch::tanh(fc->forward(x) + h * start).detach();
    return h + start;
  }
  torch::nn::Linear fc;
  at::Tensor start, h;
};

TEST(State, BeginsAsAnotherMember) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    auto net = std::make_shared<Started>();
    auto forward = wrap(net);
    for (int call = 0; call < 60; ++call) {
      if (call % 6 == 0) net->h = net->start;
      log("result", forward(at::randn({2, 3})));
      log("h", net->h);
      log("start", net->start);
    }
  });
  expect_mostly_hits(outcome);
}

/// One tensor by two handles, and a view of it by a third.
struct Shared : torch::nn::Module {
  Shared() : a(at::zeros({2, 3})), b(at::zeros({2, 3})), view(at::zeros({3})) {}
  at::Tensor forward(const at::Tensor& x) {
    a = b = x * 2 + a + b;
    view = a.select(0, 1);
    return a.sum() + view.sum();
  }
  at::Tensor a, b, view;
};

TEST(State, TwoHandlesAndAView) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    auto net = std::make_shared<Shared>();
    auto forward = wrap(net);
    for (int call = 0; call < 48; ++call) {
      if (call % 7 == 6) net->b = net->b.clone();
      log("result", forward(at::randn({2, 3})));
      log("is the same", net->a.is_same(net->b) ? 1 : 0);
      log("is a view", net->view.is_view() && net->view._base().is_same(net->a) ? 1 : 0);
      if (call % 5 == 4) net->view.fill_(0.5);
      log("members", {net->a, net->b, net->view});
    }
  });
  expect_hits(outcome);
}

struct Maybe : torch::nn::Module {
  at::Tensor forward(const at::Tensor& x) {
    h = h ? torch::tanh(*h + x) : x * 0.5;
    return *h + 1;
  }
  std::optional<at::Tensor> h;
};

TEST(State, InAnOptional) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    auto net = std::make_shared<Maybe>();
    std::vector<at::Tensor> kept;
    auto forward = wrap(net);
    for (int call = 0; call < 60; ++call) {
      // Nobody but the optional has some of them.
      if (call % 6 == 0) net->h.reset();
      log("result", forward(at::randn({2, 3})));
      if (call % 4 != 1) kept.push_back(*net->h);
    }
    log("kept", kept);
  });
  expect_some_hits(outcome);
}

/// What the caller passes is what the member has, or it is not.
TEST(State, PassedToTheFunctionItself) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    auto net = std::make_shared<Average>();
    auto forward = wrap(net);
    for (int call = 0; call < 60; ++call) {
      log("result", forward(call % 4 == 0 ? at::randn({1, 3}).select(0, 0) : net->mean));
      log("mean", net->mean);
    }
  });
  EXPECT_EQ(outcome.eager_calls, 0u) << outcome.str();
}

TEST(State, ThrowsBeforeItIsStored) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    auto net = std::make_shared<Cell>();
    auto forward = wrap(net);
    for (int call = 0; call < 40; ++call) {
      const at::Tensor old = net->h;
      try {
        log("result", forward(at::randn({2, call % 9 == 8 ? 2 : 3}), true));
        log("is replaced", net->h.is_same(old) ? 0 : 1);
      } catch (const c10::Error&) {
        log("is replaced", net->h.is_same(old) ? 0 : 1);
      }
      log("h", net->h);
    }
  });
  expect_hits(outcome);
}

/// Each copy of a compiled closure has its own state.
TEST(State, CopiesOfACompiledClosure) {
  const auto closure = [h = at::zeros({3})](const at::Tensor& x) mutable {
    h = 0.5 * h + x;
    return h;
  };
  auto eager = closure, other_eager = closure;
  auto compiled = compile(closure), other = compiled;
  seed();
  for (int call = 0; call < 40; ++call) {
    const at::Tensor x = at::randn({3});
    if (call % 3 == 0) {
      EXPECT_TRUE(same_values(eager(x), compiled(x)));
    } else {
      EXPECT_TRUE(same_values(other_eager(x), other(x)));
    }
  }
  EXPECT_GT(compiled.stats().cache_hits, 20u);
}

}  // namespace state_test
}  // namespace ahead::test
