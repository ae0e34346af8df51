#include <gtest/gtest.h>
#include <torch/torch.h>

#include "ahead/ahead.h"
#include "eager/reach.h"
#include "support/autograd_hooks.h"

/// Hooks of tensors that not all results of a function lead to: a backward of the other results
/// does not call them.
namespace ahead::test {
namespace reach_test {

using torch::autograd::variable_list;

TEST(Reach, EachHeadAndBoth) {
  expect_heads(32, watch_all, [](const HeadsCall& call) {
    const at::Tensor &l = call.l, &r = call.r;
    const at::Tensor loss = call.number % 4 == 0   ? l.sum()
                            : call.number % 4 == 1 ? r.square().sum()
                            : call.number % 4 == 2 ? (l * r).sum()
                                                   : l.exp().sum() + r.sum();
    loss.backward();
  });
}

/// Of one head only, which is what was noticed first.
TEST(Reach, OneHeadHasHooks) {
  const auto watch_one = [](const TwoHeads& net, HookCalls& hooks) {
    hooks.watch("right", net.right->bias);
  };
  expect_heads(24, watch_one, [](const HeadsCall& call) {
    (call.number % 2 == 0 ? call.l : call.r).sum().backward();
  });
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
  expect_heads(24, watch_heads, [](const HeadsCall& call) {
    const auto show_grad = [&](const char* name, const at::Tensor& loss) {
      const std::vector<at::Tensor> some =
          call.number % 2 == 0
              ? std::vector<at::Tensor>{call.net.right->weight}
              : std::vector<at::Tensor>{call.net.trunk->weight, call.net.left->bias};
      call.log(name, torch::autograd::grad({loss}, some, {}, /*retain_graph=*/true,
                                           /*create_graph=*/false, /*allow_unused=*/true));
      call.hooks.show(call.log);
    };
    show_grad("of r", call.r.sum());
    show_grad("of both", (call.l * call.r).sum());
    call.l.sum().backward();
  });
}

TEST(Reach, BackwardWithInputs) {
  expect_heads(24, watch_heads, [](const HeadsCall& call) {
    const std::vector<at::Tensor> inputs{call.net.right->weight, call.net.trunk->bias};
    (call.l * call.r).sum().backward({}, /*retain_graph=*/true, /*create_graph=*/false, inputs);
  });
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
        train_step(for_discriminator, d);
      } else {
        train_step(for_generator, g);
      }
      log("generator", *generator);
      log("discriminator", *discriminator);
      calls.show(log);
    }
  });
  expect_hits(outcome);
}

/// Hooks on the results themselves, and a result that is changed in place.
TEST(Reach, HooksOfResults) {
  expect_heads(24, watch_heads, [](const HeadsCall& call) {
    call.hooks.watch("l", call.l);
    call.hooks.watch("r", call.r);
    call.r.retain_grad();
    const at::Tensor changed = call.l.mul_(2);
    const at::Tensor loss = call.number % 3 == 0   ? changed.sum()
                            : call.number % 3 == 1 ? call.r.sum()
                                                   : (changed * call.r).sum();
    loss.backward();
    call.log("r", call.r);
  });
}

}  // namespace reach_test
}  // namespace ahead::test
