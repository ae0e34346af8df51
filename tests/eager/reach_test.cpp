#include <gtest/gtest.h>
#include <torch/torch.h>

#include <map>

#include "ahead/ahead.h"
#include "eager/harness.h"
#include "support/autograd_hooks.h"

/// Hooks of tensors that not all results of a function lead to: a backward of the other results
/// does not call them.
namespace ahead::test {
namespace {

using torch::autograd::variable_list;

/// What the hooks of each tensor were called with. In which order those of several tensors are
/// called is nobody's promise.
class HookCalls {
 public:
  void watch(const std::string& name, const at::Tensor& tensor) {
    tensor.register_hook([this, name](const at::Tensor& gradient) { note(name, gradient); });
  }
  void watch(const std::string& name, const torch::nn::Module& module) {
    for (const auto& parameter : module.named_parameters())
      watch(name + "." + parameter.key(), parameter.value());
  }
  void note(const std::string& name, const at::Tensor& gradient) {
    calls_[name].push_back(gradient.defined() ? gradient.detach().clone() : gradient);
  }

  void show(Log& log) {
    for (auto& [name, gradients] : calls_) {
      log("calls of the hook of " + name, static_cast<double>(gradients.size()));
      for (const at::Tensor& gradient : gradients) {
        gradient.defined() ? log(name, gradient) : log(name, "undefined");
      }
      gradients.clear();
    }
  }
  void show_close(Log& log) {
    for (auto& [name, gradients] : calls_) {
      log("calls of the hook of " + name, static_cast<double>(gradients.size()));
      for (const at::Tensor& gradient : gradients) {
        gradient.defined() ? log.close(name, gradient) : log(name, "undefined");
      }
      gradients.clear();
    }
  }

 private:
  std::map<std::string, std::vector<at::Tensor>> calls_;
};

/// A trunk and two heads.
struct TwoHeads {
  torch::nn::Linear trunk{3, 4}, left{4, 2}, right{4, 2};

  std::tuple<at::Tensor, at::Tensor> operator()(const at::Tensor& x) const {
    const at::Tensor hidden = torch::linear(x, trunk->weight, trunk->bias).tanh();
    return {torch::linear(hidden, left->weight, left->bias),
            torch::linear(hidden, right->weight, right->bias)};
  }
  std::vector<at::Tensor> parameters() const {
    std::vector<at::Tensor> all;
    for (const auto& part : {trunk, left, right}) {
      for (const at::Tensor& parameter : part->parameters()) all.push_back(parameter);
    }
    return all;
  }
  void show(Log& log) const {
    log("trunk", *trunk);
    log("left", *left);
    log("right", *right);
  }
};

TEST(Reach, EachHeadAndBoth) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    TwoHeads net;
    HookCalls calls;
    calls.watch("trunk", *net.trunk);
    calls.watch("left", *net.left);
    calls.watch("right", *net.right);
    auto heads = wrap([net](const at::Tensor& x) { return net(x); });
    for (int call = 0; call < 32; ++call) {
      const auto [l, r] = heads(at::randn({5, 3}));
      const at::Tensor loss = call % 4 == 0   ? l.sum()
                              : call % 4 == 1 ? r.square().sum()
                              : call % 4 == 2 ? (l * r).sum()
                                              : l.exp().sum() + r.sum();
      loss.backward();
      net.show(log);
      calls.show(log);
    }
  });
  expect_hits(outcome);
}

/// Of one head only, which is what was noticed first.
TEST(Reach, OneHeadHasHooks) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    TwoHeads net;
    HookCalls calls;
    calls.watch("right", net.right->bias);
    auto heads = wrap([net](const at::Tensor& x) { return net(x); });
    for (int call = 0; call < 24; ++call) {
      const auto [l, r] = heads(at::randn({5, 3}));
      (call % 2 == 0 ? l : r).sum().backward();
      net.show(log);
      calls.show(log);
    }
  });
  expect_hits(outcome);
}

TEST(Reach, HooksChangeTheGradientAndOptimizersStep) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    TwoHeads net;
    torch::optim::SGD optimizer(net.parameters(),
                                torch::optim::SGDOptions(0.1).momentum(0.9).weight_decay(0.1));
    for (const at::Tensor& parameter : net.parameters()) {
      parameter.register_hook([](const at::Tensor& gradient) { return gradient.clamp(-0.1, 0.1); });
    }
    auto heads = wrap([net](const at::Tensor& x) { return net(x); });
    for (int call = 0; call < 32; ++call) {
      optimizer.zero_grad();
      const auto [l, r] = heads(at::randn({5, 3}));
      const at::Tensor loss = call % 3 == 0 ? l.square().sum() : r.square().sum();
      loss.backward();
      optimizer.step();
      net.show(log);
    }
  });
  expect_hits(outcome);
}

TEST(Reach, OneAfterTheOtherWithARetainedGraph) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    TwoHeads net;
    HookCalls calls;
    calls.watch("left", *net.left);
    calls.watch("right", *net.right);
    calls.watch("trunk", net.trunk->bias);
    auto heads = wrap([net](const at::Tensor& x) { return net(x); });
    for (int call = 0; call < 24; ++call) {
      const auto [l, r] = heads(at::randn({5, 3}));
      l.sum().backward({}, /*retain_graph=*/true);
      calls.show(log);
      (l * r).sum().backward({}, /*retain_graph=*/true);
      calls.show(log);
      r.exp().sum().backward();
      calls.show(log);
      net.show(log);
    }
  });
  expect_hits(outcome);
}

TEST(Reach, ASecondBackwardThrows) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    TwoHeads net;
    HookCalls calls;
    calls.watch("right", *net.right);
    auto heads = wrap([net](const at::Tensor& x) { return net(x); });
    for (int call = 0; call < 24; ++call) {
      const auto [l, r] = heads(at::randn({5, 3}));
      const at::Tensor loss = r.sum();
      loss.backward();
      calls.show(log);
      EXPECT_THROW(loss.backward(), c10::Error);
      net.show(log);
    }
  });
  expect_hits(outcome);
}

TEST(Reach, HooksOfNodesAndAfterAccumulation) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    namespace impl = torch::autograd::impl;
    TwoHeads net;
    HookCalls calls;
    const auto left = impl::grad_accumulator(net.left->weight);
    const auto right = impl::grad_accumulator(net.right->weight);
    left->add_pre_hook(std::make_unique<PreHook>([&](const variable_list& gradients) {
      calls.note("before left", gradients[0]);
      return scaled(gradients, 0.5);
    }));
    right->add_post_hook(
        std::make_unique<PostHook>([&](const variable_list& outputs, const variable_list& inputs) {
          calls.note("after right", inputs[0]);
          return outputs;
        }));
    impl::set_post_acc_grad_hooks(net.right->bias,
                                  std::make_unique<AccumulatedHook>([&](const at::Tensor& leaf) {
                                    calls.note("accumulated", leaf.grad());
                                  }));
    auto heads = wrap([net](const at::Tensor& x) { return net(x); });
    for (int call = 0; call < 24; ++call) {
      const auto [l, r] = heads(at::randn({5, 3}));
      (call % 3 == 0 ? l.sum() : call % 3 == 1 ? r.sum() : (l * r).sum()).backward();
      net.show(log);
      calls.show(log);
    }
  });
  expect_hits(outcome);
}

TEST(Reach, HooksComeAndGo) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    TwoHeads net;
    HookCalls calls;
    auto heads = wrap([net](const at::Tensor& x) { return net(x); });
    std::optional<unsigned> hook;
    for (int call = 0; call < 40; ++call) {
      if (call == 10 || call == 30) {
        hook = net.right->weight.register_hook(
            [&](const at::Tensor& gradient) { calls.note("right", gradient); });
      } else if (call == 20) {
        net.right->weight.remove_hook(*hook);
      }
      const auto [l, r] = heads(at::randn({5, 3}));
      (call % 2 == 0 ? l : r).sum().backward();
      net.show(log);
      calls.show(log);
    }
  });
  expect_hits(outcome);
}

TEST(Reach, GradRatherThanBackward) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    TwoHeads net;
    HookCalls calls;
    calls.watch("left", *net.left);
    calls.watch("right", *net.right);
    auto heads = wrap([net](const at::Tensor& x) { return net(x); });
    for (int call = 0; call < 24; ++call) {
      const auto [l, r] = heads(at::randn({5, 3}));
      const std::vector<at::Tensor> some =
          call % 2 == 0 ? std::vector<at::Tensor>{net.right->weight}
                        : std::vector<at::Tensor>{net.trunk->weight, net.left->bias};
      log("of r", torch::autograd::grad({r.sum()}, some, {}, /*retain_graph=*/true,
                                        /*create_graph=*/false, /*allow_unused=*/true));
      calls.show(log);
      log("of both", torch::autograd::grad({(l * r).sum()}, some, {}, /*retain_graph=*/true,
                                           /*create_graph=*/false, /*allow_unused=*/true));
      calls.show(log);
      l.sum().backward();
      calls.show(log);
      net.show(log);
    }
  });
  expect_hits(outcome);
}

TEST(Reach, BackwardWithInputs) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    TwoHeads net;
    HookCalls calls;
    calls.watch("left", *net.left);
    calls.watch("right", *net.right);
    auto heads = wrap([net](const at::Tensor& x) { return net(x); });
    for (int call = 0; call < 24; ++call) {
      const auto [l, r] = heads(at::randn({5, 3}));
      const std::vector<at::Tensor> inputs{net.right->weight, net.trunk->bias};
      (l * r).sum().backward({}, /*retain_graph=*/true, /*create_graph=*/false, inputs);
      calls.show(log);
      net.show(log);
    }
  });
  expect_hits(outcome);
}

/// Each result leads to some leaves only, and no two to the same ones.
TEST(Reach, ThreeResults) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    const at::Tensor a = leaf({3}), b = leaf({3}), c = leaf({3}), all = leaf({3});
    HookCalls calls;
    calls.watch("a", a);
    calls.watch("b", b);
    calls.watch("c", c);
    calls.watch("all", all);
    auto three = wrap([a, b, c, all](const at::Tensor& x) {
      const at::Tensor ab = (a * b * x).exp(), bc = (b + c * x).tanh();
      return std::make_tuple(ab * all, bc * all, ab * bc + all);
    });
    for (int call = 0; call < 48; ++call) {
      const auto [x, y, z] = three(at::randn({2, 3}));
      const int chosen = call % 7 + 1;
      at::Tensor loss = at::zeros({});
      if (chosen & 1) loss = loss + x.sum();
      if (chosen & 2) loss = loss + y.square().sum();
      if (chosen & 4) loss = loss + z.sum();
      loss.backward();
      log("leaves", std::vector<at::Tensor>{a, b, c, all});
      calls.show(log);
    }
  });
  expect_hits(outcome);
}

/// A result that is saved for the backward, and dropped by the caller.
TEST(Reach, SavedResults) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    const at::Tensor a = leaf({3}), b = leaf({3});
    HookCalls calls;
    calls.watch("a", a);
    calls.watch("b", b);
    auto two = wrap([a, b](const at::Tensor& x) {
      const at::Tensor first = (a * x).exp();
      return std::make_tuple(first, (first * b).sigmoid());
    });
    for (int call = 0; call < 24; ++call) {
      at::Tensor loss;
      {
        const auto [first, second] = two(at::randn({2, 3}));
        loss = call % 2 == 0 ? first.sum() : second.sum();
      }
      loss.backward();
      log("leaves", std::vector<at::Tensor>{a, b});
      calls.show(log);
    }
  });
  expect_hits(outcome);
}

/// Both losses of a GAN come from one function.
TEST(Reach, GeneratorAndDiscriminator) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    auto generator = torch::nn::Linear(2, 3), discriminator = torch::nn::Linear(3, 1);
    HookCalls calls;
    calls.watch("generator", *generator);
    calls.watch("discriminator", *discriminator);
    torch::optim::SGD for_generator(generator->parameters(), 0.05),
        for_discriminator(discriminator->parameters(), 0.05);
    auto losses = wrap([&](const at::Tensor& noise, const at::Tensor& real) {
      const at::Tensor made = generator->forward(noise).tanh();
      const at::Tensor of_discriminator =
          torch::softplus(discriminator->forward(made.detach())).mean() +
          torch::softplus(-discriminator->forward(real)).mean();
      const at::Tensor of_generator = torch::softplus(-discriminator->forward(made)).mean();
      return std::make_tuple(of_generator, of_discriminator);
    });
    for (int step = 0; step < 32; ++step) {
      const auto [g, d] = losses(at::randn({4, 2}), at::randn({4, 3}));
      if (step % 2 == 0) {
        for_discriminator.zero_grad();
        d.backward();
        for_discriminator.step();
      } else {
        for_generator.zero_grad();
        g.backward();
        for_generator.step();
      }
      log("generator", *generator);
      log("discriminator", *discriminator);
      calls.show(log);
    }
  });
  expect_hits(outcome);
}

/// A gradient penalty of one head while leaves of the other have hooks.
TEST(Reach, GradientPenalty) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    TwoHeads net;
    HookCalls calls;
    calls.watch("trunk", *net.trunk);
    calls.watch("left", *net.left);
    calls.watch("right", *net.right);
    auto heads = wrap([net](const at::Tensor& x) { return net(x); });
    for (int call = 0; call < 24; ++call) {
      const at::Tensor x = leaf({5, 3});
      const auto [l, r] = heads(x);
      const at::Tensor head = call % 2 == 0 ? l : r;
      const at::Tensor gradient =
          torch::autograd::grad({head.tanh().sum()}, {x}, {}, true, /*create_graph=*/true)[0];
      gradient.square().sum().backward();
      for (const at::Tensor& parameter : net.parameters()) log.close("parameter", parameter);
      log.close("x", x);
      calls.show_close(log);
    }
  });
  expect_hits(outcome);
}

/// A backward that keeps its history accumulates gradients with one.
TEST(Reach, BackwardWithHistory) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    const at::Tensor a = leaf({3}), b = leaf({3});
    HookCalls calls;
    calls.watch("a", a);
    calls.watch("b", b);
    auto two = wrap([a, b](const at::Tensor& x) {
      const at::Tensor first = (a * x).exp();
      return std::make_tuple(first, (first * b).sigmoid());
    });
    for (int call = 0; call < 24; ++call) {
      const auto [first, second] = two(at::randn({2, 3}));
      const std::vector<at::Tensor> gradients =
          torch::autograd::grad({(call % 2 == 0 ? first : second).sum()}, {a, b}, {}, true,
                                /*create_graph=*/true, /*allow_unused=*/true);
      calls.show_close(log);
      at::Tensor penalty = gradients[0].square().sum();
      if (call % 4 == 3) penalty = penalty + gradients[1].square().sum();
      penalty.backward();
      log.close("a", a);
      log.close("b", b);
      calls.show_close(log);
    }
  });
  expect_hits(outcome);
}

/// Doubles, and has another idea of its gradient.
struct Reversed : torch::autograd::Function<Reversed> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x) {
    context->save_for_backward({x});
    return x * 2;
  }
  static variable_list backward(torch::autograd::AutogradContext* context,
                                variable_list gradients) {
    return {-gradients[0] * context->get_saved_variables()[0].square()};
  }
};

TEST(Reach, SecondDerivativesOfACustomFunction) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    const at::Tensor a = leaf({3}), b = leaf({3});
    HookCalls calls;
    calls.watch("a", a);
    calls.watch("b", b);
    auto two = wrap([](const at::Tensor& x, const at::Tensor& a, const at::Tensor& b) {
      const at::Tensor inner = Reversed::apply(x);
      return std::make_tuple((inner * a).exp(), (inner * b).sigmoid());
    });
    for (int call = 0; call < 24; ++call) {
      const at::Tensor x = leaf({3});
      const auto [first, second] = two(x, a, b);
      const at::Tensor loss = call % 3 == 0   ? first.sum()
                              : call % 3 == 1 ? second.sum()
                                              : (first * second).sum();
      const std::vector<at::Tensor> gradients = torch::autograd::grad(
          {loss}, {x, a, b}, {}, true, /*create_graph=*/true, /*allow_unused=*/true);
      calls.show_close(log);
      gradients[0].square().sum().backward();
      log.close("x", x);
      log.close("a", a);
      log.close("b", b);
      calls.show_close(log);
    }
  });
  expect_hits(outcome);
}

/// What an argument was computed from has hooks.
TEST(Reach, ArgumentsWithAHistory) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    const at::Tensor a = leaf({3}), b = leaf({3});
    HookCalls calls;
    calls.watch("a", a);
    calls.watch("b", b);
    auto two = wrap([](const at::Tensor& x, const at::Tensor& y) {
      return std::make_tuple(x.sin(), x.cos() * y);
    });
    for (int call = 0; call < 24; ++call) {
      const auto [first, second] = two(a.exp(), b.exp());
      (call % 2 == 0 ? first : second).sum().backward();
      log("a", a);
      log("b", b);
      calls.show(log);
    }
  });
  expect_hits(outcome);
}

/// Its gradient would be zeros rather than none.
TEST(Reach, ArgumentsOfACustomFunction) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    const at::Tensor a = leaf({3}), b = leaf({3});
    auto two = wrap([](const at::Tensor& x, const at::Tensor& y) {
      return std::make_tuple(x.sin(), x.cos() * y);
    });
    for (int call = 0; call < 24; ++call) {
      a.mutable_grad() = b.mutable_grad() = at::Tensor();
      const auto [first, second] = two(Reversed::apply(a), Reversed::apply(b));
      (call % 2 == 0 ? first : second).sum().backward();
      log("a", a);
      log("b", b);
    }
  });
  expect_hits(outcome);
}

/// The history of an argument was released, but nothing goes there.
TEST(Reach, ArgumentsWithAReleasedHistory) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    const at::Tensor a = leaf({3}), b = leaf({3});
    auto two = wrap([](const at::Tensor& x, const at::Tensor& y) {
      return std::make_tuple(x.sin(), x.cos() * y);
    });
    for (int call = 0; call < 24; ++call) {
      const at::Tensor old = b.exp();
      old.sum().backward();
      const auto [first, second] = two(a, old);
      first.sum().backward();
      log("a", a);
      log("b", b);
    }
  });
  expect_hits(outcome);
}

/// Hooks on the results themselves, and a result that is changed in place.
TEST(Reach, HooksOfResults) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    TwoHeads net;
    HookCalls calls;
    calls.watch("left", *net.left);
    calls.watch("right", *net.right);
    auto heads = wrap([net](const at::Tensor& x) { return net(x); });
    for (int call = 0; call < 24; ++call) {
      auto [l, r] = heads(at::randn({5, 3}));
      calls.watch("l", l);
      calls.watch("r", r);
      r.retain_grad();
      const at::Tensor changed = l.mul_(2);
      (call % 3 == 0 ? changed.sum() : call % 3 == 1 ? r.sum() : (changed * r).sum()).backward();
      log("r", r);
      net.show(log);
      calls.show(log);
    }
  });
  expect_hits(outcome);
}

/// What became of a backward.
template <class F>
std::string error_of(const F& backward) {
  try {
    backward();
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
  return "";
}

/// Two losses of one function, that are differentiated one after the other: a discriminator's and a
/// generator's.
TEST(Reach, OneAfterTheOther) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    auto left = torch::nn::Linear(3, 2), right = torch::nn::Linear(3, 2);
    auto losses = wrap([&](const at::Tensor& x) {
      return std::make_tuple(left->forward(x).tanh().pow(2).sum(),
                             right->forward(x).sigmoid().log().sum());
    });
    for (int call = 0; call < 24; ++call) {
      const auto [first, second] = losses(at::randn({5, 3}));
      if (call % 3 != 0) first.backward();
      second.backward();
      if (call % 3 == 0) first.backward();
      for (const at::Tensor& loss : {first, second})
        log("again", error_of([&] { loss.backward(); }));
      log("left", *left);
      log("right", *right);
    }
  });
  expect_hits(outcome);
}

/// Of three results two share what they are made of.
TEST(Reach, OneAfterTheOtherOfThree) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    const at::Tensor a = leaf({3}), b = leaf({3});
    int count = 0;
    a.register_hook([&](const at::Tensor&) { ++count; });
    auto three = wrap([=](const at::Tensor& x) {
      const at::Tensor shared = (a * x).exp();
      return std::vector<at::Tensor>{shared.sin(), (b * x).tanh(), shared.cos()};
    });
    for (int call = 0; call < 24; ++call) {
      const std::vector<at::Tensor> results = three(at::randn({3}));
      for (int k = 0; k < 3; ++k) {
        const at::Tensor& result = results[static_cast<size_t>((call + k) % 3)];
        log("error", error_of([&] { result.sum().backward(); }));
      }
      log("a", a);
      log("b", b);
      log("count", count);
    }
  });
  expect_hits(outcome);
}

/// A loss and what it is made of: the backward of one lets go of all, as in eager.
TEST(Reach, ALossAndItsLogits) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    auto net = torch::nn::Linear(3, 4);
    auto both = wrap([&](const at::Tensor& x, const at::Tensor& target) {
      const at::Tensor logits = net->forward(x).tanh();
      return std::make_tuple(torch::cross_entropy_loss(logits, target), logits);
    });
    for (int call = 0; call < 24; ++call) {
      const at::Tensor x = at::randn({5, 3});
      const auto [loss, logits] = both(x, at::randint(4, {5}));
      const size_t before = x.use_count();
      loss.backward();
      log("owners let go", static_cast<double>(before - x.use_count()));
      log("error", error_of([&] { logits.sum().backward(); }));
      log("net", *net);
    }
  });
  expect_hits(outcome);
}

/// Results are held by their history only while they are needed.
TEST(Reach, NothingOutlivesTheResults) {
  const at::Tensor a = leaf({3}), b = leaf({3});
  a.register_hook([](const at::Tensor&) {});
  b.register_hook([](const at::Tensor&) {});
  Options options;
  options.confirm = Confirm::Never;
  auto two = compile(
      [a, b](const at::Tensor& x) {
        const at::Tensor first = (a * x).exp();
        return std::make_tuple(first, (first * b).sigmoid());
      },
      options);
  two(at::randn({3}));
  const at::Tensor x = at::randn({3});
  std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> memory;
  for (int backward = 0; backward < 3; ++backward) {
    const auto [first, second] = two(x);
    EXPECT_EQ(first.grad_fn()->name(), "CompiledFunctionBackward");
    for (const at::Tensor& result : {first, second})
      memory.emplace_back(c10::intrusive_ptr<c10::StorageImpl>::unsafe_reclaim_from_nonowning(
          result.storage().unsafeGetStorageImpl()));
    if (backward == 1) second.sum().backward();
    if (backward == 2) first.sum().backward({}, /*retain_graph=*/true);
  }
  EXPECT_EQ(x.use_count(), 1u);
  for (const auto& storage : memory) EXPECT_TRUE(storage.expired());
  EXPECT_EQ(two.stats().eager_calls, 0u);
  EXPECT_EQ(two.stats().cache_hits, 3u);
}

}  // namespace
}  // namespace ahead::test
