#include <gtest/gtest.h>
#include <torch/torch.h>

#include "ahead/ahead.h"
#include "eager/harness.h"
#include "support/noisy_gradient.h"

/// Programs that draw random numbers, as people write them: with and without
/// Options::functionalize_rng they must draw eager's, and leave the generator where eager does.
namespace ahead::test {
namespace random_test {

namespace F = torch::nn::functional;

/// Runs a program `[](auto& wrap, Log& log, Options options)` in both modes.
template <class Program>
void in_both_modes(const Program& program) {
  for (const bool functional : {false, true}) {
    SCOPED_TRACE(functional ? "with functionalize_rng" : "without functionalize_rng");
    const Outcome outcome = like_eager([&](auto& wrap, Log& log) {
      program(wrap, log, Options{.functionalize_rng = functional});
    });
    expect_doubling(outcome);
  }
}

TEST(RandomPrograms, DropoutInATransformerThatTrains) {
  in_both_modes([](auto& wrap, Log& log, const Options& options) {
    auto layer = torch::nn::TransformerEncoderLayer(
        torch::nn::TransformerEncoderLayerOptions(8, 2).dim_feedforward(16).dropout(0.3));
    torch::optim::SGD optimizer(layer->parameters(), 0.1);
    auto forward = wrap(layer, options);
    for (int call = 0; call < 10; ++call) {
      log("loss", train_step(optimizer, [&] {
            return forward(at::randn({5, 3, 8}), at::Tensor(), at::Tensor()).pow(2).mean();
          }));
    }
    log("layer", *layer);
  });
}

TEST(RandomPrograms, NoiseThatIsAddedToTheData) {
  in_both_modes([](auto& wrap, Log& log, const Options& options) {
    const at::Tensor weight = at::randn({4, 3}).requires_grad_();
    auto loss_of = wrap(
        [&](const at::Tensor& x) {
          const at::Tensor noisy = x + 0.1 * at::randn_like(x);
          return (noisy.mul(at::rand({6, 1}) > 0.5).matmul(weight)).pow(2).sum();
        },
        options);
    for (int call = 0; call < 10; ++call) {
      const at::Tensor loss = loss_of(at::randn({6, 4}));
      loss.backward();
      log("loss", loss);
      log("weight", weight);
    }
  });
}

TEST(RandomPrograms, VariationalAutoencoder) {
  in_both_modes([](auto& wrap, Log& log, const Options& options) {
    auto encoder = torch::nn::Linear(6, 8), decoder = torch::nn::Linear(4, 6);
    torch::optim::Adam optimizer(encoder->parameters(), 0.01);
    auto loss_of = wrap(
        [=](const at::Tensor& x) mutable {
          const auto parts = encoder->forward(x).chunk(2, 1);
          const at::Tensor z = parts[0] + (0.5 * parts[1]).exp() * at::randn({5, 4});
          const at::Tensor kl = -0.5 * (1 + parts[1] - parts[0].pow(2) - parts[1].exp()).sum();
          return F::mse_loss(decoder->forward(z), x) + kl;
        },
        options);
    for (int call = 0; call < 10; ++call)
      log("loss", train_step(optimizer, [&] { return loss_of(at::randn({5, 6})); }));
    log("encoder", *encoder);
  });
}

TEST(RandomPrograms, GumbelSoftmax) {
  in_both_modes([](auto& wrap, Log& log, const Options& options) {
    const at::Tensor table = at::randn({3, 2}).requires_grad_();
    auto choose = wrap(
        [&](const at::Tensor& logits) {
          return F::gumbel_softmax(logits, F::GumbelSoftmaxFuncOptions().tau(0.7)).matmul(table);
        },
        options);
    for (int call = 0; call < 10; ++call) {
      const at::Tensor logits = at::randn({4, 3}).requires_grad_();
      const at::Tensor chosen = choose(logits);
      chosen.pow(2).sum().backward();
      log("chosen", chosen);
      log("logits", logits);
    }
    log("table", table);
  });
}

TEST(RandomPrograms, StochasticDepthByAMask) {
  in_both_modes([](auto& wrap, Log& log, const Options& options) {
    auto block = torch::nn::Linear(4, 4);
    auto forward = wrap(
        [=](at::Tensor x) mutable {
          for (int depth = 0; depth < 3; ++depth) {
            const at::Tensor keep = at::empty({x.size(0), 1}).bernoulli_(0.8);
            x = x + keep / 0.8 * block->forward(x).tanh();
          }
          return x;
        },
        options);
    for (int call = 0; call < 10; ++call) {
      const at::Tensor y = forward(at::randn({6, 4}));
      y.sum().backward();
      log("y", y);
      log("block", *block);
    }
  });
}

TEST(RandomPrograms, AMaskThatIsDrawnOnceAndUsedTwice) {
  in_both_modes([](auto& wrap, Log& log, const Options& options) {
    auto forward = wrap(
        [](at::Tensor x) {
          const at::Tensor mask = at::bernoulli(at::full_like(x, 0.5));
          at::Tensor y = x.sin() * mask;
          y.mul_(mask + 1);
          return y.exp() * mask;
        },
        options);
    for (int call = 0; call < 10; ++call) {
      const at::Tensor x = at::randn({7, 3}).requires_grad_();
      forward(x).sum().backward();
      log("x", x);
    }
  });
}

TEST(RandomPrograms, ShufflesInside) {
  in_both_modes([](auto& wrap, Log& log, const Options& options) {
    const at::Tensor data = at::randn({12, 3});
    const at::Tensor weight = at::randn({3}).requires_grad_();
    auto epoch = wrap(
        [&](double rate) {
          const at::Tensor order = torch::randperm(12);
          at::Tensor total = at::zeros({});
          for (int64_t i = 0; i < 3; ++i) {
            const at::Tensor rows = data.index_select(0, order.narrow(0, 4 * i, 4));
            total = total + rate * rows.matmul(weight).pow(2).mean();
          }
          return total;
        },
        options);
    for (int call = 0; call < 10; ++call) {
      const at::Tensor loss = epoch(0.5);
      loss.backward();
      log("loss", loss);
      log("weight", weight);
    }
  });
}

TEST(RandomPrograms, ASeedBeforeTheLoopAndDrawsBetweenCalls) {
  in_both_modes([](auto& wrap, Log& log, const Options& options) {
    auto forward = wrap([](const at::Tensor& x) { return at::dropout(x * 2, 0.4, true); }, options);
    torch::manual_seed(11);
    for (int call = 0; call < 10; ++call) {
      log("forward", forward(at::ones({9})));
      log("between", at::rand({2}));
      if (call == 6) torch::manual_seed(11);
    }
  });
}

TEST(RandomPrograms, InferenceWithMonteCarloDropout) {
  in_both_modes([](auto& wrap, Log& log, const Options& options) {
    const torch::NoGradGuard no_grad;
    auto forward = wrap(
        [](const at::Tensor& x) {
          std::vector<at::Tensor> samples;
          for (int i = 0; i < 4; ++i) samples.push_back(at::dropout(x, 0.5, true).sum(1));
          return at::stack(samples).mean(0);
        },
        options);
    for (int call = 0; call < 10; ++call) log("mean", forward(at::randn({4, 9})));
  });
}

TEST(RandomPrograms, TheBackwardDrawsWhereItRuns) {
  in_both_modes([](auto& wrap, Log& log, const Options& options) {
    auto forward =
        wrap([](const at::Tensor& x) { return NoisyGradient::apply(x.sin()).cos(); }, options);
    for (int call = 0; call < 10; ++call) {
      const at::Tensor x = at::randn({4}).requires_grad_();
      const at::Tensor y = forward(x);
      log("between", at::rand({3}));
      y.sum().backward();
      log("x", x);
    }
  });
}

TEST(RandomPrograms, OtherGeneratorsAreLeftAlone) {
  in_both_modes([](auto& wrap, Log& log, const Options& options) {
    at::Generator own = at::detail::createCPUGenerator(5);
    auto forward = wrap(
        [&](const at::Tensor& x) {
          return at::rand({5}, own) * x + at::rand({5}) - at::randn({5}, own);
        },
        options);
    for (int call = 0; call < 10; ++call) log("y", forward(at::randn({5})));
    log("own", own.get_state());
  });
}

TEST(RandomPrograms, LayoutsThatAreNotContiguous) {
  in_both_modes([](auto& wrap, Log& log, const Options& options) {
    auto forward = wrap(
        [](const at::Tensor& x) {
          at::Tensor noise = at::empty({6, 5}).t();
          noise.uniform_(0.5, 2);
          return at::dropout(x.t(), 0.3, true) * noise * at::rand_like(x.t());
        },
        options);
    for (int call = 0; call < 10; ++call) {
      const at::Tensor x = at::randn({6, 5}).requires_grad_();
      forward(x).pow(2).sum().backward();
      log("x", x);
    }
  });
}

TEST(RandomPrograms, ManyDistributions) {
  in_both_modes([](auto& wrap, Log& log, const Options& options) {
    auto draw = wrap(
        [](const at::Tensor& x) {
          const at::Tensor p = x.sigmoid();
          return std::vector<at::Tensor>{at::normal(x, 1.0),
                                         at::poisson(p * 3),
                                         at::multinomial(p, 2),
                                         at::randint(3, 9, {4}),
                                         at::randint_like(x, 7),
                                         at::empty_like(x).exponential_(2),
                                         at::empty_like(x).geometric_(0.3),
                                         at::empty_like(x).cauchy_(),
                                         at::empty_like(x).log_normal_(),
                                         at::rrelu(x, 0.1, 0.3, true),
                                         at::binomial(at::full_like(x, 9), p),
                                         at::_standard_gamma(p + 1),
                                         std::get<0>(at::native_dropout(x, 0.5, true)),
                                         at::feature_alpha_dropout(x, 0.5, true)};
        },
        options);
    for (int call = 0; call < 10; ++call) log("drawn", draw(at::randn({4, 5})));
  });
}

TEST(RandomPrograms, SecondDerivativesThroughDropout) {
  in_both_modes([](auto& wrap, Log& log, const Options& options) {
    auto forward = wrap(
        [](const at::Tensor& x) { return (at::dropout(x.pow(3), 0.4, true) * x).sum(); }, options);
    for (int call = 0; call < 10; ++call) {
      const at::Tensor x = at::randn({40, 50}).requires_grad_();
      const torch::autograd::variable_list value{forward(x)}, wanted{x};
      const at::Tensor slope = torch::autograd::grad(value, wanted, {}, true, true)[0];
      slope.pow(2).sum().backward();
      log.close("x", x);
      log.close("gradient", x.grad());
    }
  });
}

TEST(RandomPrograms, CompiledBackwardsOfCompiledAutograd) {
  in_both_modes([](auto& wrap, Log& log, const Options& options) {
    auto forward = wrap(
        [](const at::Tensor& x) { return NoisyGradient::apply(at::dropout(x.sin(), 0.5, true)); },
        options);
    const compiled_autograd::Enable on;
    for (int call = 0; call < 10; ++call) {
      const at::Tensor x = at::randn({40, 50, 4}).requires_grad_();
      forward(x).sum().backward();
      log("x", x);
    }
  });
}

at::Generator generator() {
  return at::detail::getDefaultCPUGenerator();
}

TEST(RandomPrograms, TheSameMaskTwiceBySettingTheState) {
  in_both_modes([](auto& wrap, Log& log, const Options& options) {
    auto forward = wrap(
        [](const at::Tensor& x) {
          const at::Tensor state = generator().get_state();
          const at::Tensor y = at::dropout(x, 0.5, true);
          generator().set_state(state);
          return y * at::dropout(x.sin(), 0.5, true) + at::rand({1});
        },
        options);
    for (int call = 0; call < 10; ++call) {
      const at::Tensor x = at::randn({4, 5}).requires_grad_();
      forward(x).sum().backward();
      log("x", x);
    }
  });
}

TEST(RandomPrograms, NoiseThatLeavesNoTrace) {
  in_both_modes([](auto& wrap, Log& log, const Options& options) {
    auto forward = wrap(
        [](const at::Tensor& x) {
          const at::Tensor first = at::rand({5});
          const at::Tensor state = generator().get_state();
          const at::Tensor y = x * first + at::randn({5});
          generator().set_state(state);
          return y;
        },
        options);
    for (int call = 0; call < 10; ++call) {
      log("y", forward(at::randn({5})));
      log("next", at::rand({2}));
    }
  });
}

/// What people write by hand to compute something again in the backward.
struct Recomputed : torch::autograd::Function<Recomputed> {
  static at::Tensor body(const at::Tensor& x, const at::Tensor& w) {
    return at::dropout((x.matmul(w)).tanh(), 0.5, true) + 0.1 * at::randn({4, 4});
  }
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                            const at::Tensor& w) {
    context->saved_data["state"] = generator().get_state();
    context->save_for_backward({x, w});
    return body(x, w);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    const at::Tensor now = generator().get_state();
    generator().set_state(context->saved_data["state"].toTensor());
    const auto saved = context->get_saved_variables();
    const torch::autograd::variable_list inputs{saved[0].detach().requires_grad_(),
                                                saved[1].detach().requires_grad_()};
    torch::autograd::variable_list results;
    {
      const at::AutoGradMode with_grad(true);
      results = {body(inputs[0], inputs[1])};
    }
    generator().set_state(now);
    return torch::autograd::grad(results, inputs, {gradients[0]});
  }
};

TEST(RandomPrograms, CheckpointsWrittenByHand) {
  in_both_modes([](auto& wrap, Log& log, const Options& options) {
    const at::Tensor w = at::randn({4, 4}).requires_grad_();
    torch::optim::SGD optimizer({w}, 0.1);
    auto forward = wrap(
        [&](at::Tensor x) {
          for (int i = 0; i < 3; ++i) x = Recomputed::apply(x, w);
          return x.pow(2).mean() * at::rand({1});
        },
        options);
    for (int call = 0; call < 10; ++call) {
      const at::Tensor loss = forward(at::randn({4, 4}));
      log("between", at::rand({call + 1}));
      optimizer.zero_grad();
      loss.backward();
      optimizer.step();
      log("w", w);
      log("after", at::rand({2}));
    }
  });
}

TEST(RandomPrograms, SeedsInsideRunEagerly) {
  for (const bool functional : {false, true}) {
    const Outcome outcome = like_eager([&](auto& wrap, Log& log) {
      auto forward = wrap(
          [](const at::Tensor& x) {
            torch::manual_seed(7);
            return at::dropout(x, 0.5, true);
          },
          Options{.functionalize_rng = functional});
      for (int call = 0; call < 8; ++call) {
        const at::Tensor x = at::randn({9});
        log("y", forward(x));
        if (call == 7) forward.explain(x);
      }
    });
    expect_eager(outcome);
    EXPECT_NE(outcome.explanation.find("seeds a generator"), std::string::npos)
        << outcome.explanation;
  }
}

}  // namespace random_test
}  // namespace ahead::test
