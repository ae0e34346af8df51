#include <ATen/FunctionalTensorWrapper.h>
#include <gtest/gtest.h>

#include "support/trace_check.h"

/// Programs that the fuzzer found to differ from eager mode, made small.
namespace ahead {
namespace {

using at::Tensor;
using Tensors = std::vector<at::Tensor>;

Tensor computed(at::IntArrayRef sizes) {
  return (at::randn(sizes, at::make_generator<at::CPUGeneratorImpl>(5)).requires_grad_() * 1);
}

}  // namespace

TEST(TraceRegressions, GradientByCapturedTensorThatIsNoLeaf) {
  expect_like_eager([] {
    const Tensor x = computed({3});
    const auto function = [x](const Tensors&) -> Tensors {
      const Tensor y = (x * x * x).sum();
      return torch::autograd::grad({y}, {x}, {}, /*retain_graph=*/true, /*create_graph=*/true);
    };
    return Scene{function, {}, {x}, {}};
  });
}

TEST(TraceRegressions, GradientByLeafThatCapturedTensorWasMadeFrom) {
  const Tensor leaf = at::full({3}, 2.0).requires_grad_();
  const Tensor x = leaf * 3;
  const auto function = [=](const Tensors&) -> Tensors {
    return torch::autograd::grad({(x * x).sum()}, {leaf}, {}, /*retain_graph=*/true);
  };
  const Graph graph = trace(function, {});
  const Tensors results = interpret(graph, {});
  EXPECT_TRUE(at::equal(results[0], at::full({3}, 36.0)));
}

TEST(TraceRegressions, RefusesToWriteToTensorsThatOverlapThemselves) {
  const auto function = [](const Tensors& in) -> Tensors { return {in[0].tril_()}; };
  EXPECT_THROW(trace(function, {at::zeros({1, 2}).expand({2, 2})}), Unsupported);
  const auto windows = [](const Tensors& in) -> Tensors {
    in[0].unfold(0, 2, 1).mul_(2);
    return {};
  };
  EXPECT_THROW(trace(windows, {at::zeros({4})}), Unsupported);
}

TEST(TraceRegressions, KernelsThatAskForRequiresGrad) {
  expect_like_eager([] {
    const Tensor leaf = at::arange(4.0).view({2, 2}).t().clone().requires_grad_();
    const auto function = [](const Tensors& in) -> Tensors {
      in[0].fill_diagonal_(3);
      return {};
    };
    return Scene{function, {as_non_leaf(leaf)}, {}, {leaf}};
  });
}

namespace {

/// Every second element of a larger storage, from the fourth on.
Tensor with_gaps(at::IntArrayRef sizes, at::ScalarType dtype = at::kFloat) {
  const Tensor storage = at::randn({3 + 2 * c10::multiply_integers(sizes)},
                                   at::make_generator<at::CPUGeneratorImpl>(6));
  std::vector<int64_t> strides(sizes.size());
  int64_t stride = 2;
  for (size_t i = sizes.size(); i-- > 0;) {
    strides[i] = stride;
    stride *= sizes[i];
  }
  return storage.to(dtype).as_strided(sizes, strides, 3);
}

}  // namespace

TEST(TraceRegressions, TrianglesOfTruthValuesWithGapsAreTruthValues) {
  const auto function = [](const Tensors& in) -> Tensors {
    return {in[0].tril(), in[0].triu(), at::fill(in[0], -1.5)};
  };
  const Graph graph = trace(function, {with_gaps({2, 2}, at::kBool)});
  for (const auto& output : graph.outputs()) EXPECT_EQ(output.value->meta.dtype, at::kBool);
}

TEST(TraceRegressions, BatchNormWhereSizesOfOneLeaveTheLayoutOpen) {
  const Tensor x = at::randn({1, 2, 1, 2}).as_strided({1, 2, 1, 2}, {1, 1, 2, 2});
  const auto function = [](const Tensors& in) -> Tensors {
    return {at::batch_norm(in[0], {}, {}, {}, {}, true, 0.1, 1e-5, false)};
  };
  const Graph graph = trace(function, {x});
  const auto recorded = meaningful(graph.outputs()[0].value->meta);
  EXPECT_EQ(recorded, meaningful(TensorMeta::of(function({x})[0])));
}

TEST(TraceRegressions, RandomNumbersForTensorsWithGaps) {
  expect_like_eager([] {
    const auto function = [](const Tensors& in) -> Tensors {
      in[0].normal_(0, 1);
      in[0].bernoulli_(0.5);
      const Tensor part = (in[1] * 1).select(1, 1);
      return {in[1].slice(0, 0, std::nullopt, 2).clone().normal_(0, 1), part.bernoulli_(0.5),
              part.clone().exponential_(), part.uniform_(0, 1).clone()};
    };
    return Scene{function, {with_gaps({5, 4}), at::zeros({2, 3, 4}).permute({2, 1, 0})}, {}, {}};
  });
}

TEST(TraceRegressions, GradientsOfExtremaHaveTheSignsAndLayoutOfEager) {
  expect_like_eager([] {
    const Tensor x = at::randn({4, 3}, at::make_generator<at::CPUGeneratorImpl>(1)).t();
    const auto function = [](const Tensors& in) -> Tensors {
      return {-at::max(in[0]), at::min(in[0]), -at::median(in[0])};
    };
    return Scene{function, {x.detach().requires_grad_()}, {}, {}};
  });
}

TEST(TraceRegressions, GradientOfClampThatEagerRefuses) {
  const auto function = [](const Tensors& in) -> Tensors {
    return {at::clamp(in[0], in[1], in[0])};
  };
  const Tensors inputs = {at::zeros({}).requires_grad_(), at::zeros({1})};
  EXPECT_THROW(function(inputs)[0].sum().backward(), c10::Error);
  EXPECT_THROW(trace_joint(function, inputs), c10::Error);
}

TEST(TraceRegressions, AddressesMemoryOfWrittenTensors) {
  for (const bool before : {false, true}) {
    expect_like_eager([before] {
      const auto function = [before](const Tensors& in) -> Tensors {
        Tensors results;
        const auto address = [&] {
          for (const Tensor& x : in) {
            results.push_back(x.as_strided({3}, {1}, 1));
            results.push_back(x.view({4, 1}).as_strided({3}, {1}));
          }
        };
        if (before) address();
        for (const Tensor& x : in) x.mul_(2);
        if (!before) address();
        for (Tensor& result : results) result = result * 1;
        return results;
      };
      return Scene{function, {at::arange(9.0).narrow(0, 3, 4), with_gaps({4})}, {}, {}};
    });
  }
}

TEST(TraceRegressions, RefusesDifferentiableWritesBesideFragileViews) {
  const Tensor x = at::arange(4.0).view({2, 2}), w = at::ones({}).requires_grad_();
  EXPECT_THROW(trace_joint(
                   [&](const Tensors& in) -> Tensors {
                     Tensor view = in[0].t();
                     view.t_();
                     view.select(0, 1).mul_(in[1]);
                     return {in[0] * 1};
                   },
                   {x, w}),
               Unsupported);
  EXPECT_THROW(trace_joint(
                   [&](const Tensors& in) -> Tensors {
                     const Tensor product = in[0] * in[1];
                     const Tensor part = product.narrow(1, 0, 1);
                     const Tensor strided = part.as_strided({3}, {1});
                     part.mul_(2);
                     return {product, strided};
                   },
                   {x, w}),
               Unsupported);
}

TEST(TraceRegressions, WrittenTensorsKeepTheirGaps) {
  expect_like_eager([] {
    const auto function = [](const Tensors& in) -> Tensors {
      in[0].square_();
      const Tensor turned = in[0].permute({2, 1, 0});
      turned.sub_(1);
      return {at::atan2(in[0], at::xlogy(in[0], in[0].abs())), turned.relu()};
    };
    return Scene{function, {with_gaps({4, 2, 2}, at::kDouble)}, {}, {}};
  });
}

TEST(TraceRegressions, RefusesToWriteBesideATensor) {
  const auto function = [](const Tensors& in) -> Tensors {
    in[0].as_strided({2}, {1}, 0).mul_(2);
    return {};
  };
  EXPECT_THROW(trace(function, {at::arange(9.0).narrow(0, 3, 4)}), Unsupported);
  EXPECT_THROW(trace(function, {with_gaps({4})}), Unsupported);
}

TEST(TraceRegressions, DiagonalOfTensorThatDoesNotBeginAtItsStorage) {
  const auto function = [](const Tensors& in) -> Tensors {
    in[0].fill_diagonal_(3);
    return {};
  };
  const Tensor leaf = at::zeros({9}).requires_grad_();
  const Tensor x = (leaf * 1).narrow(0, 3, 4).view({2, 2});
  const Graph graph = trace_joint(function, {x});
  const Tensors results = interpret(graph, {x.detach(), at::ones({2, 2})});
  EXPECT_TRUE(at::equal(results[0], 3 * at::eye(2)));
  EXPECT_TRUE(at::equal(results[1], 1 - at::eye(2)));
}

TEST(TraceRegressions, GradientByCapturedTensorAfterWritingToIt) {
  const Tensor x = computed({3}), start = x.detach().clone();
  const auto* history = x.grad_fn().get();
  const auto function = [x](const Tensors&) -> Tensors {
    x.neg_();
    return torch::autograd::grad({(x * x).sum()}, {x}, {}, /*retain_graph=*/true);
  };
  const Graph graph = trace(function, {});
  EXPECT_EQ(x.grad_fn().get(), history);
  EXPECT_TRUE(at::equal(interpret(graph, {})[1], -2 * start));
}

TEST(TraceRegressions, OrderOfGradientsOfWrittenViews) {
  expect_like_eager([] {
    const Tensor leaf = at::zeros({8, 8}).requires_grad_();
    const auto function = [](const Tensors& in) -> Tensors {
      const Tensor joined = at::cat({in[0], in[0]}, 0);
      in[0].tril_();
      return {joined};
    };
    return Scene{function, {(leaf * 1).narrow(0, 0, 8)}, {}, {leaf}};
  });
}

TEST(TraceRegressions, RefusesResultThatSharesMemoryWithWrittenTensor) {
  const Tensor x = at::zeros({2});
  const Tensor same = x.narrow(0, 0, 1);
  const auto function = [x](const Tensors& in) -> Tensors {
    in[0].add_(1);
    return {x};
  };
  EXPECT_THROW(trace(function, {same}), Unsupported);
}

TEST(TraceRegressions, RefusesGradientsOfIntegerViews) {
  const auto function = [](const Tensors& in) -> Tensors {
    at::argsort(in[0]).view({2}).eq_(in[0]);
    return {};
  };
  EXPECT_THROW(trace_joint(function, {at::zeros({2}).requires_grad_()}), Unsupported);
}

TEST(TraceRegressions, RefusesToReadWhatIsBeingWritten) {
  const auto reads_itself = [](const Tensors& in) -> Tensors {
    in[0].sub_(in[0].select(1, 2));
    return {};
  };
  EXPECT_THROW(trace(reads_itself, {at::zeros({3, 3})}), Unsupported);
  const auto turned = [](const Tensors& in) -> Tensors {
    in[0].copy_(in[0].t());
    return {};
  };
  EXPECT_THROW(trace(turned, {at::zeros({3, 3})}), Unsupported);
}

TEST(TraceRegressions, WritesBesideWhatIsRead) {
  expect_like_eager([] {
    const auto function = [](const Tensors& in) -> Tensors {
      in[0].select(1, 0).sub_(in[0].select(1, 2));
      in[0].slice(0, 0, 2).mul_(in[0].slice(0, 2, 4));
      in[0].slice(1, 0, 3, 2).add_(in[0].slice(1, 1, 4, 2));
      in[0].view({16}).mul_(in[0].view({16}));
      return {};
    };
    return Scene{function, {at::arange(16.0).view({4, 4})}, {}, {}};
  });
}

TEST(TraceRegressions, WritesThroughExpandThatMakesNothingLarger) {
  expect_like_eager([] {
    const auto function = [](const Tensors& in) -> Tensors {
      in[0].expand({1, -1, 3}).tanh_();
      const Tensor sum = in[0].sum().expand({});
      sum.fill_(2).tanh_();
      return {sum};
    };
    return Scene{function, {at::full({2, 3}, 1e10)}, {}, {}};
  });
}

TEST(TraceRegressions, GradientsThroughViewsOfTensorsWrittenLater) {
  expect_like_eager([] {
    const auto function = [](const Tensors& in) -> Tensors {
      const Tensor a = at::hardsigmoid(in[0]), b = in[0] * 2;
      const Tensor turned = a.transpose(0, 1), larger = b.expand({5, 7, 3, 4});
      a.fill_(0);
      b.mul_(in[0]);
      return {turned * 1, larger * 1};
    };
    return Scene{function, {at::ones({3, 4}).requires_grad_()}, {}, {}};
  });
}

TEST(TraceRegressions, WritesToPartsOfExpandedTensors) {
  expect_like_eager([] {
    const auto function = [](const Tensors& in) -> Tensors {
      const Tensor expanded = in[0].expand({3, 2});
      expanded.select(0, 1).mul_(in[1]);
      return {expanded * 2, in[0] + 1};
    };
    const Tensor leaf = at::full({1, 2}, 3.0).requires_grad_();
    const Tensor factor = at::full({2}, 5.0).requires_grad_();
    return Scene{function, {as_non_leaf(leaf), factor}, {}, {leaf, factor}};
  });
}

TEST(TraceRegressions, NothingOfATraceIsLeftBehind) {
  c10::weak_intrusive_ptr<c10::StorageImpl> memory(c10::intrusive_ptr<c10::StorageImpl>{});
  const auto function = [&](const Tensors& in) -> Tensors {
    const Tensor twice = in[0] * 2;
    memory =
        at::functionalization::impl::from_functional_tensor(twice).storage().getWeakStorageImpl();
    return {twice.sin()};
  };
  trace_joint(function, {at::ones({3}).requires_grad_()});
  EXPECT_EQ(memory.use_count(), 0U);
}

TEST(TraceRegressions, GradientByArgumentThatIsCapturedToo) {
  const Tensor x = at::full({3}, 2.0).requires_grad_();
  const auto function = [x](const Tensors& in) -> Tensors {
    const Tensor y = (in[0] * in[0]).sum();
    return {torch::autograd::grad({y}, {x}, {}, /*retain_graph=*/true)[0],
            torch::autograd::grad({y}, {in[0]})[0]};
  };
  const Graph graph = trace(function, {x});
  EXPECT_FALSE(x.grad().defined());
  for (const Tensor& result : interpret(graph, {x}))
    EXPECT_TRUE(at::equal(result, at::full({3}, 4.0)));
}

TEST(TraceRegressions, RefusesToReshapeWhatIsAddressed) {
  const auto function = [](const Tensors& in) -> Tensors {
    in[0].unsqueeze_(-1);
    return {in[0].as_strided({1}, {1})};
  };
  EXPECT_THROW(trace(function, {at::zeros({2})}), Unsupported);
}

TEST(TraceRegressions, RefusesToReadBehindTheEndOfWhatWasComputed) {
  const auto behind = [](const Tensors& in) -> Tensors {
    return {at::mse_loss(in[0], in[1]).as_strided({1}, {2}, 1)};
  };
  const Tensor x = at::randn({1, 2}), y = at::randn({1, 2});
  EXPECT_THROW(trace(behind, {x, y}), Unsupported);
  const auto inside = [](const Tensors& in) -> Tensors {
    return {in[0].mul(2).narrow(1, 0, 1).as_strided({1}, {1}, 1)};
  };
  const Tensor read = interpret(trace(inside, {x}), {x})[0];
  EXPECT_TRUE(at::equal(read, inside({x})[0]));
}

TEST(TraceRegressions, OperatorRegisteredWhereAnotherWas) {
  const auto recorded = [](const char* schema, const char* name, auto kernel, auto call) {
    torch::Library library(torch::Library::DEF, "ahead_reuse", std::nullopt, __FILE__, __LINE__);
    library.def(schema);
    library.impl(name, torch::dispatch(c10::DispatchKey::CompositeExplicitAutograd, kernel));
    const auto handle = c10::Dispatcher::singleton().findSchemaOrThrow(
        ("ahead_reuse::" + std::string(name)).c_str(), "");
    return trace([&](const Tensors& in) { return Tensors{call(handle, in[0])}; }, {at::zeros({2})})
        .str();
  };
  const auto one = [](const Tensor& x) { return x.clone(); };
  const auto two = [](const Tensor& x, const Tensor& y) { return at::cat({x, y}); };
  const std::string first =
      recorded("one(Tensor x) -> Tensor", "one", one, [](const auto& handle, const Tensor& x) {
        return handle.template typed<Tensor(const Tensor&)>().call(x);
      });
  const std::string second = recorded(
      "two(Tensor x, Tensor y) -> Tensor", "two", two, [](const auto& handle, const Tensor& x) {
        return handle.template typed<Tensor(const Tensor&, const Tensor&)>().call(x, x);
      });
  EXPECT_NE(first.find("ahead_reuse.one"), std::string::npos) << first;
  EXPECT_NE(second.find("ahead_reuse.two"), std::string::npos) << second;
}

TEST(TraceRegressions, CapturedTensorThatGetsAGradientAndIsReturned) {
  const Tensor captured = at::randn({2});
  const auto function = [&](const Tensors& in) -> Tensors {
    captured.add_(in[0], 2);
    return {captured};
  };
  const JointGraph graph = trace_joint(function, Tensors{at::randn({2}).set_requires_grad(true)});
  size_t tangents = 0;
  for (const Graph::Input& input : graph.inputs()) {
    tangents += input.slot.kind == Slot::Kind::Tangent ? 1 : 0;
  }
  EXPECT_EQ(tangents, 2u) << "one of what was written, one of what was returned";
}

}  // namespace ahead
