#include "subclass/wrapped_check.h"

namespace ahead::wrapped::compiled_test {

TEST(SubclassCompiled, TakesAndReturnsWrappers) {
  check([](const Tensors& x) { return Tensors{(x[0] * 2).tanh()}; },
        [] {
          return Tensors{two({3, 4})};
        });
}

TEST(SubclassCompiled, HasGradientsOfWrappers) {
  check([](const Tensors& x) { return Tensors{(x[0] * x[0].sin()).sum(1)}; },
        [] {
          return Tensors{two({3, 4}, true)};
        });
}

TEST(SubclassCompiled, MixesWithPlainTensors) {
  check(
      [](const Tensors& x) {
        return Tensors{x[0].matmul(x[1]).relu(), x[0] * 2};
      },
      [] {
        return Tensors{leaf({5, 3}), two({3, 4}, true)};
      });
  check([](const Tensors& x) { return Tensors{x[0] * x[1]}; },
        [] {
          return Tensors{at::randn({3, 4}), two({3, 4}, true)};
        });
}

TEST(SubclassCompiled, Nests) {
  check([](const Tensors& x) { return Tensors{(x[0] + x[1]) * x[2]}; },
        [] {
          return Tensors{TwoTensor::make(two({2, 3}), two({2, 3})).requires_grad_(),
                         TwoTensor::make(two({2, 3}), two({2, 3})), leaf({2, 3})};
        });
}

TEST(SubclassCompiled, DoesNotDispatchInHits) {
  auto compiled = ahead::compile([](const at::Tensor& x) { return (x * 3).cos(); },
                                 {.backend = "interpreter", .fullgraph = true});
  const at::Tensor x = Tagged::make(at::randn({3}), 5).requires_grad_();
  for (int i = 0; i < 2; ++i) compiled(x);
  const int64_t before = Tagged::calls;
  const at::Tensor y = compiled(x);
  EXPECT_EQ(compiled.stats().cache_hits, 1U);
  EXPECT_EQ(Tagged::calls, before);
  EXPECT_EQ(classes_of(y), "Tagged(Tensor,5)");
}

TEST(SubclassCompiled, IsGuardedByClassAndMetadata) {
  auto compiled = ahead::compile([](const at::Tensor& x) { return x * 3; },
                                 {.backend = "interpreter", .fullgraph = true});
  const at::Tensor inner = at::randn({3});
  for (int round = 0; round < 4; ++round) {
    for (const int64_t tag : {1, 2})
      EXPECT_EQ(classes_of(compiled(Tagged::make(inner, tag))),
                "Tagged(Tensor," + std::to_string(tag) + ")");
    EXPECT_EQ(classes_of(compiled(TwoTensor::make(inner, inner))), "TwoTensor(Tensor,Tensor,)");
    EXPECT_EQ(classes_of(compiled(inner)), "Tensor");
  }
  EXPECT_EQ(compiled.stats().eager_calls, 0U);
  EXPECT_EQ(compiled.stats().compilations, 4U);
}

TEST(SubclassCompiled, IsOneGraphWithoutWrappers) {
  auto compiled = ahead::compile([](const at::Tensor& x, const at::Tensor& y) { return x * y + y; },
                                 {.backend = "interpreter", .fullgraph = true});
  const at::Tensor x = two({3}, true), y = two({3});
  for (int i = 0; i < 3; ++i) compiled(x, y).sum().backward();
  size_t graphs = 0;
  for (const Program& program : compiled.programs()) {
    if (program.name != "partition.forward") continue;
    ++graphs;
    const Graph graph = Graph::parse(program.str());
    EXPECT_EQ(graph.inputs().size(), 4U);
    size_t multiplications = 0;
    for (const Node& node : graph.nodes()) multiplications += node.op().name() == "aten.mul.Tensor";
    EXPECT_EQ(multiplications, 2U) << program.str();
  }
  EXPECT_EQ(graphs, 1U);
}

TEST(SubclassCompiled, WritesToArguments) {
  const Function write = [](const Tensors& x) {
    x[0].mul_(2);
    return Tensors{x[0] * x[1]};
  };
  check(write, [] { return Tensors{two({3}), two({3}, true)}; });
  const Function write_differentiably = [](const Tensors& x) {
    const at::Tensor y = x[0] * 1;
    y.mul_(x[1]);
    return Tensors{y, y.sin()};
  };
  check(write_differentiably, [] { return Tensors{two({3}, true), two({3}, true)}; });
}

TEST(SubclassCompiled, ViewsWhoseShapeChangesInPlaceRunEagerly) {
  // Calling the view operators again would leave the change out.
  const std::vector<aot::FlatFunction> functions = {
      [](const Tensors& in) -> Tensors {
        const at::Tensor same = in[1].detach();
        same.t_();
        return {same.narrow(0, 0, 1), in[0] * 2};
      },
      [](const Tensors& in) -> Tensors {
        const at::Tensor same = in[1].detach();
        same.t_();
        return {same};
      },
      [](const Tensors& in) -> Tensors {
        const at::Tensor same = in[1].detach();
        same.unsqueeze_(-1);
        return {same.narrow(2, 0, 1)};
      },
  };
  for (const aot::FlatFunction& function : functions) {
    auto compiled = ahead::compile(function, {.backend = "interpreter", .confirm = Confirm::Never});
    for (int call = 0; call < 4; ++call) {
      const Tensors in{two({2, 2}), leaf({2, 2})};
      const Tensors expected = function(in), actual = compiled(in);
      EXPECT_EQ(difference(expected[0], actual[0]), "") << call;
      EXPECT_TRUE(actual[0].is_alias_of(in[1])) << call;
    }
    EXPECT_EQ(compiled.stats().cache_hits, 0U);
  }
}

TEST(SubclassCompiled, WritesToArgumentsThatAreComputed) {
  auto step = [](const at::Tensor& x, const at::Tensor& y) {
    x.mul_(y);
    return x.sin();
  };
  auto compiled = ahead::compile(step, {.backend = "interpreter", .fullgraph = true});
  for (int call = 0; call < 6; ++call) {
    Tensors grads[2];
    for (const bool eager : {true, false}) {
      torch::manual_seed(call);
      const at::Tensor root = two({3}, true), y = two({3}, true), x = root * 2;
      const at::Tensor z = eager ? step(x, y) : compiled(x, y);
      EXPECT_EQ(x._version(), 1);
      (x * z).sum().backward();
      grads[eager ? 0 : 1] = {root.grad(), y.grad(), x.detach()};
    }
    for (size_t i = 0; i < 3; ++i) EXPECT_EQ(difference(grads[0][i], grads[1][i]), "") << call << i;
  }
  EXPECT_EQ(compiled.stats().eager_calls, 0U);
  EXPECT_GE(compiled.stats().cache_hits, 3U);
}

TEST(SubclassCompiled, ReturnsViewsOfArguments) {
  check(
      [](const Tensors& x) {
        return Tensors{x[0].view({-1}), x[0] * x[1]};
      },
      [] {
        return Tensors{two({3, 2}, true), leaf({3, 2})};
      });
  check(
      [](const Tensors& x) {
        x[0].mul_(3);
        return Tensors{x[0].t(), x[0]};
      },
      [] {
        return Tensors{two({3, 2})};
      });
  auto compiled = ahead::compile([](const at::Tensor& x) { return x.view({-1}); },
                                 {.backend = "interpreter", .fullgraph = true});
  const at::Tensor x = two({2, 2}, true) * 1;
  for (int i = 0; i < 3; ++i) {
    const at::Tensor y = compiled(x);
    EXPECT_TRUE(y.is_view());
    EXPECT_TRUE(y._base().is_same(x));
  }
  EXPECT_EQ(compiled.stats().cache_hits, 1U);
}

TEST(SubclassCompiled, ReturnsPlainArguments) {
  check(
      [](const Tensors& x) {
        return Tensors{x[0], x[1] * x[0], x[0].view({-1})};
      },
      [] {
        return Tensors{leaf({3, 2}), two({3, 2}, true)};
      });
  check(
      [](const Tensors& x) {
        const at::Tensor y = x[0].exp();
        return Tensors{y.view({-1}), y.t(), x[1] * 2};
      },
      [] {
        return Tensors{leaf({3, 2}), two({3, 2}, true)};
      });
}

TEST(SubclassCompiled, ReturnsViewsOfResults) {
  check(
      [](const Tensors& x) {
        const at::Tensor y = x[0] * 2;
        return Tensors{y, y.view({-1})};
      },
      [] {
        return Tensors{two({3, 2}, true)};
      });
}

TEST(SubclassCompiled, TakesTheSameWrapperTwice) {
  check([](const Tensors& x) { return Tensors{x[0] * x[1]}; },
        [] {
          const at::Tensor x = two({3}, true);
          return Tensors{x, x};
        });
}

TEST(SubclassCompiled, CapturesParameters) {
  torch::manual_seed(1);
  const at::Tensor weight = two({4, 4}, true), bias = leaf({4});
  const at::Tensor other_weight = TwoTensor::make(inside_of<TwoTensor>(weight)->a().clone(),
                                                  inside_of<TwoTensor>(weight)->b().clone())
                                      .requires_grad_();
  const at::Tensor other_bias = bias.detach().clone().requires_grad_();
  const auto layer = [](const at::Tensor& x, const at::Tensor& w, const at::Tensor& b) {
    return (x.matmul(w) + b).tanh().sum();
  };
  auto compiled = ahead::compile([&](const at::Tensor& x) { return layer(x, weight, bias); },
                                 {.backend = "interpreter", .fullgraph = true});
  torch::optim::SGD ours({weight, bias}, 0.1), eager({other_weight, other_bias}, 0.1);
  for (int step = 0; step < 7; ++step) {
    const at::Tensor x = at::randn({2, 4});
    ours.zero_grad();
    eager.zero_grad();
    compiled(x).backward();
    layer(x, other_weight, other_bias).backward();
    ASSERT_EQ(difference(other_weight.grad(), weight.grad()), "") << step;
    ASSERT_EQ(difference(other_bias.grad(), bias.grad()), "") << step;
    ASSERT_NE(inside_of(bias.grad()), nullptr);
    bias.mutable_grad() = inside_of<TwoTensor>(bias.grad())->a();
    other_bias.mutable_grad() = inside_of<TwoTensor>(other_bias.grad())->a();
    ours.step();
    eager.step();
    ASSERT_EQ(difference(other_weight, weight), "") << step;
  }
  EXPECT_EQ(compiled.stats().eager_calls, 0U);
  EXPECT_GE(compiled.stats().cache_hits, 3U);
}

// What a program is given of captured tensors stands behind the arguments, taken apart like these.
TEST(SubclassCompiled, TellsBackendsWhichInputsAreTheSameInAllCalls) {
  static std::vector<bool> forward_inputs, inference_inputs;
  register_backend("subclass_static_inputs", [](const aot::CompileRequest& request) {
    if (request.name.ends_with(".forward")) forward_inputs = request.static_inputs;
    if (request.name.ends_with(".inference")) inference_inputs = request.static_inputs;
    const Graph graph(request.graph);
    return [graph](Tensors&& inputs) { return interpret(graph, inputs); };
  });
  const at::Tensor weight = two({4, 4}, true), bias = leaf({4});
  const Options options{.backend = "subclass_static_inputs", .fullgraph = true};
  auto layer = [&](const at::Tensor& x) { return x.matmul(weight) + bias; };
  auto compiled = ahead::compile(layer, options);
  for (int call = 0; call < 4; ++call) {
    const at::Tensor x = two({2, 4});
    ASSERT_EQ(difference(layer(x), compiled(x)), "");
    torch::autograd::grad({compiled(x).sum()}, {weight, bias});
    const at::NoGradGuard no_grad;
    ASSERT_EQ(difference(layer(x), compiled(x)), "");
  }
  EXPECT_EQ(compiled.stats().eager_calls, 0U);
  // The two of x, those of the weight, the bias, and what carries its gradient, a wrapper.
  EXPECT_EQ(forward_inputs, (std::vector<bool>{false, false, true, true, true, false, false}));
  EXPECT_EQ(inference_inputs, (std::vector<bool>{false, false, true, true, true}));
}

TEST(SubclassCompiled, IsNotTakenForAnotherTensorThatItHolds) {
  const at::Tensor own = two({3});
  auto compiled =
      ahead::compile([own](const at::Tensor& x) { return x * own; }, {.backend = "interpreter"});
  for (int i = 0; i < 3; ++i) compiled(own);
  const at::Tensor other = two({3});
  EXPECT_EQ(difference(other * own, compiled(other)), "");
}

TEST(SubclassCompiled, IsDifferentiatedTwice) {
  const auto penalty = [](const at::Tensor& y, const at::Tensor& x) {
    return torch::autograd::grad({y.sum()}, {x}, {}, true, true)[0].pow(2).sum();
  };
  auto compiled = ahead::compile([](const at::Tensor& x) { return x.pow(3); },
                                 {.backend = "interpreter", .fullgraph = true});
  for (int call = 0; call < 4; ++call) {
    torch::manual_seed(call);
    const at::Tensor x = two({3}, true);
    torch::manual_seed(call);
    const at::Tensor same = two({3}, true);
    penalty(x.pow(3), x).backward();
    penalty(compiled(same), same).backward();
    EXPECT_EQ(difference(x.grad(), same.grad()), "");
  }
  EXPECT_GE(compiled.stats().cache_hits, 1U);
}

TEST(SubclassCompiled, IsDifferentiatedTwiceWhereGradientsOfItsPartsLieOtherwise) {
  const auto f = [](const at::Tensor& x, const at::Tensor& w) {
    return at::matmul(x.permute({2, 1, 0}).chunk(2, 2)[1], w.t());
  };
  auto compiled =
      ahead::compile(f, {.backend = "interpreter", .fullgraph = true, .confirm = Confirm::Never});
  for (int call = 0; call < 3; ++call) {
    Tensors second[2];
    for (const bool eager : {true, false}) {
      torch::manual_seed(call);
      const at::Tensor x = at::randn({2, 2, 2}).requires_grad_(), w = two({1}, true);
      const at::Tensor y = eager ? f(x, w) : compiled(x, w), tangent = two({2, 2});
      at::Tensor loss;
      for (const at::Tensor& gradient : torch::autograd::grad({y}, {x, w}, {tangent}, true, true))
        loss = loss.defined() ? loss + gradient.square().sum() : gradient.square().sum();
      second[eager ? 0 : 1] = torch::autograd::grad({loss}, {x, w});
    }
    for (size_t i = 0; i < 2; ++i) {
      Tensors expected, actual;
      append_plain(second[0][i], expected);
      append_plain(second[1][i], actual);
      for (size_t k = 0; k < expected.size(); ++k)
        EXPECT_TRUE(at::allclose(expected[k], actual[k])) << call << " " << i;
    }
  }
  EXPECT_GE(compiled.stats().cache_hits, 2U);
}

TEST(SubclassCompiled, WorksWithoutGradMode) {
  at::NoGradGuard no_grad;
  check([](const Tensors& x) { return Tensors{x[0].matmul(x[1])}; },
        [] {
          return Tensors{two({3, 3}, true), two({3, 3})};
        });
}

TEST(SubclassCompiled, NoticesWritesToSavedTensors) {
  auto compiled = ahead::compile([](const at::Tensor& x) { return x * x; },
                                 {.backend = "interpreter", .fullgraph = true});
  for (int call = 0; call < 3; ++call) {
    const at::Tensor x = two({3}, true) * 1;
    const at::Tensor y = compiled(x);
    {
      at::NoGradGuard no_grad;
      x.mul_(2);
    }
    EXPECT_NE(error_of([&] { y.sum().backward(); }).find("modified by an inplace operation"),
              std::string::npos)
        << call;
  }
}

}  // namespace ahead::wrapped::compiled_test
