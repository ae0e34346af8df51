#include "sizes/training.h"
#include "subclass/wrapped_check.h"

/// Calls with wrappers of all sizes, which one program serves.
namespace ahead::wrapped::sizes_test {

using Make = std::function<Tensors(int64_t)>;

/// Calls a function eagerly and compiled with equal arguments for each of these sizes, and expects
/// the same results, arguments and gradients. Returns what was compiled.
CompileStats compare_at(const std::vector<int64_t>& sizes, const Function& function,
                        const Make& make, Options options = {}) {
  options.backend = "interpreter";
  options.fullgraph = true;
  auto compiled = ahead::compile(function, options);
  for (size_t call = 0; call < sizes.size(); ++call) {
    SCOPED_TRACE("call " + std::to_string(call) + ", size " + std::to_string(sizes[call]));
    torch::manual_seed(call);
    const Outcome expected = run(function, make(sizes[call]));
    torch::manual_seed(call);
    const Outcome actual =
        run([&](const Tensors& args) { return compiled(args); }, make(sizes[call]));
    expect_same_outcome(expected, actual);
    if (testing::Test::HasFailure()) break;
  }
  return compiled.stats();
}

/// All batches from 1 to 64: few programs, and each size is observed once but for some calls.
void expect_one_program(const Function& function, const Make& make) {
  expect_few_programs(compare_at(rounds_of(1, 64, 2), function, make), 3, 64, 12);
}

/// A matrix of small integers and a scale, which is never trained.
class Int8 final : public WrapperTensorOf<Int8> {
 public:
  static constexpr const char* class_name = "Int8";
  static at::Tensor of(const at::Tensor& matrix) {
    const at::Tensor scale = matrix.abs().amax({1}, /*keepdim=*/true) / 127;
    return make((matrix / scale).round().to(at::kChar), scale);
  }
  static at::Tensor make(at::Tensor data, at::Tensor scale) {
    WrapperLook look = WrapperLook::of(data);
    look.dtype = scale.scalar_type();
    return wrap(std::make_shared<const Int8>(std::move(data), std::move(scale)), look);
  }
  Int8(at::Tensor data, at::Tensor scale) : data_(std::move(data)), scale_(std::move(scale)) {}
  WrapperParts flatten() const override { return {{data_, scale_}, {}}; }
  static std::shared_ptr<const Int8> unflatten(WrapperParts parts) {
    return std::make_shared<const Int8>(parts.inner.at(0), parts.inner.at(1));
  }
  bool dispatch(const c10::OperatorHandle& op, torch::jit::Stack& stack) const override {
    if (op.operator_name().name == "aten::t" || op.operator_name().name == "aten::detach") {
      for (c10::IValue& value : stack) {
        const auto self = inside_of<Int8>(value.toTensor());
        const bool turns = op.operator_name().name == "aten::t";
        value = make(turns ? self->data_.t() : self->data_.detach(),
                     turns ? self->scale_.t() : self->scale_.detach());
      }
      return true;
    }
    for (c10::IValue& value : stack) {
      const auto self = value.isTensor() ? inside_of<Int8>(value.toTensor()) : nullptr;
      if (self != nullptr) value = self->data_.to(at::kFloat) * self->scale_;
    }
    op.callBoxed(stack);
    return true;
  }

 private:
  at::Tensor data_, scale_;
};

TEST(SubclassSizes, Minibatches) {
  const at::Tensor data = two({70, 6});
  const auto step = [](const Tensors& x) -> Tensors {
    return {x[0].matmul(x[1]).tanh().mul(x[0].mean())};
  };
  expect_one_program(step, [&](int64_t n) -> Tensors {
    return {data.narrow(0, 3, n), leaf({6, 4})};
  });
  // Epochs whose last batch is smaller.
  std::vector<int64_t> epochs;
  for (int epoch = 0; epoch < 4; ++epoch) epochs.insert(epochs.end(), {16, 16, 16, 16, 6});
  const CompileStats stats = compare_at(epochs, step, [&](int64_t n) -> Tensors {
    return {data.narrow(0, 5, n), leaf({6, 4})};
  });
  expect_few_programs(stats, 2, 2, 6);
}

TEST(SubclassSizes, FrozenInt8Weights) {
  torch::manual_seed(3);
  const at::Tensor weight = Int8::of(at::randn({5, 6}));
  expect_one_program(
      [&](const Tensors& x) -> Tensors {
        return {(x[0].mm(weight.t()) + x[0].mm(x[1]).mm(x[2])).relu()};
      },
      [](int64_t n) -> Tensors {
        return {leaf({n, 6}), leaf({6, 2}), leaf({2, 5})};
      });
}

TEST(SubclassSizes, LengthsOfSequences) {
  const auto attend = [](const Tensors& x) -> Tensors {
    const at::Tensor query = x[0].matmul(x[1]), key = x[0].matmul(x[2]);
    const at::Tensor weights = query.matmul(key.transpose(1, 2)).softmax(-1);
    return {weights.matmul(x[0]).flatten(1, 2), weights.detach()};
  };
  const Make make = [](int64_t n) -> Tensors {
    return {two({2 + n % 3, n, 4}, true), leaf({4, 4}), two({4, 4}, true)};
  };
  expect_few_programs(compare_at(rounds_of(1, 48, 3), attend, make), 3, 48, 14);
}

TEST(SubclassSizes, WrappersAsResults) {
  expect_one_program(
      [](const Tensors& x) -> Tensors {
        const at::Tensor y = x[0] * 2;
        return {y, y.view({-1}), x[1].t(), x[2], (x[2] + x[1]).sum(0)};
      },
      [](int64_t n) -> Tensors {
        return {two({n, 3}, true), two({n, 3}), two({n, 3}, true)};
      });
}

TEST(SubclassSizes, NestedWrappers) {
  expect_one_program(
      [](const Tensors& x) -> Tensors { return {(x[0] * x[1]).cumsum(0), x[2] * x[2].size(0)}; },
      [](int64_t n) -> Tensors {
        return {TwoTensor::make(two({n, 3}), two({n, 3})).requires_grad_(), leaf({n, 3}),
                Tagged::make(two({n, 2}), 4).requires_grad_()};
      });
}

TEST(SubclassSizes, WritesToArguments) {
  expect_one_program(
      [](const Tensors& x) -> Tensors {
        x[0].mul_(2).add_(x[1]);
        x[2].add_(x[1].detach().sum(0));
        return {x[0] * x[1], x[2] * 1};
      },
      [](int64_t n) -> Tensors {
        return {two({n, 3}), two({n, 3}, true), two({3})};
      });
}

/// What is written to was computed, and the write has a gradient, and a second one.
TEST(SubclassSizes, WritesToWhatWasComputed) {
  const auto function = [](const at::Tensor& x, const at::Tensor& w) {
    x.mul_(w).add_(1);
    return x.sin() * w;
  };
  const auto derive = [](const auto& f, int64_t n) {
    torch::manual_seed(n);
    const at::Tensor leaf = two({n, 3}, true), w = two({n, 3}, true), x = leaf * 2;
    const at::Tensor y = f(x, w);
    const Tensors ones{at::ones_like(y.detach()), at::ones_like(x.detach())};
    const bool twice = n % 2 == 0;
    const Tensors first = torch::autograd::grad({y, x}, {leaf, w}, ones, true, twice);
    Tensors all{y.detach(), x.detach(), first[0].detach(), first[1].detach()};
    if (twice)
      all.push_back(torch::autograd::grad({first[1].pow(2)}, {w}, {at::ones_like(ones[0])})[0]);
    return all;
  };
  auto compiled = compile(function, {.backend = "interpreter", .fullgraph = true});
  for (const int64_t n : rounds_of(1, 24, 2)) {
    const Tensors expected = derive(function, n), actual = derive(compiled, n);
    for (size_t i = 0; i < expected.size(); ++i)
      ASSERT_EQ(difference(expected[i], actual[i]), "") << i << " of size " << n;
  }
  expect_few_programs(compiled.stats(), 3, 24, 10);
}

/// The gradient of a plain tensor that meets a wrapper is one.
TEST(SubclassSizes, GradientsOfAnotherClass) {
  expect_one_program([](const Tensors& x) -> Tensors { return {(x[0] * x[1]).sin(), x[0].exp()}; },
                     [](int64_t n) -> Tensors {
                       return {leaf({n, 3}), two({n, 3}, true)};
                     });
}

TEST(SubclassSizes, SecondDerivatives) {
  const auto function = [](const at::Tensor& x, const at::Tensor& w) {
    return x.matmul(w).tanh().pow(3);
  };
  const auto derive = [](const auto& f, const at::Tensor& x, const at::Tensor& w) {
    const at::Tensor y = f(x, w);
    const at::Tensor ones = at::ones_like(y.detach());
    const at::Tensor first = torch::autograd::grad({y}, {x}, {ones}, true, true)[0];
    Tensors all =
        torch::autograd::grad({first.pow(2)}, {x, w}, {at::ones_like(first.detach())});
    all.insert(all.end(), {y.detach(), first.detach()});
    return all;
  };
  auto compiled = compile(function, {.backend = "interpreter", .fullgraph = true});
  for (const int64_t n : rounds_of(1, 24, 2)) {
    const at::Tensor x = two({n, 4}, true), w = two({4, 3}, true);
    const Tensors expected = derive(function, x, w), actual = derive(compiled, x, w);
    for (size_t i = 0; i < expected.size(); ++i)
      ASSERT_EQ(difference(expected[i], actual[i]), "") << i << " of size " << n;
  }
  expect_few_programs(compiled.stats(), 3, 24, 10);
}

/// Random numbers, and writes to what the backward does not need.
TEST(SubclassSizes, SecondDerivativesBesideDropout) {
  const auto function = [](const at::Tensor& x, const at::Tensor& w, const at::Tensor& sums) {
    const at::Tensor y = torch::dropout(x.matmul(w).tanh(), 0.5, true);
    sums.add_(y.detach().sum(0));
    return y.pow(3);
  };
  const auto derive = [](const auto& f, int64_t n) {
    torch::manual_seed(n);
    const at::Tensor x = two({n, 4}, true), w = two({4, 3}, true), sums = two({3});
    const at::Tensor y = f(x, w, sums);
    const at::Tensor ones = at::ones_like(y.detach());
    const bool twice = n % 2 == 0;
    const at::Tensor first = torch::autograd::grad({y}, {w}, {ones}, twice, twice)[0];
    Tensors all{y.detach(), first.detach(), sums};
    if (twice) {
      all.push_back(
          torch::autograd::grad({first.pow(2)}, {x}, {at::ones_like(first.detach())})[0]);
    }
    return all;
  };
  auto compiled = compile(function, {.backend = "interpreter", .fullgraph = true});
  for (const int64_t n : rounds_of(1, 24, 2)) {
    const Tensors expected = derive(function, n), actual = derive(compiled, n);
    for (size_t i = 0; i < expected.size(); ++i)
      ASSERT_EQ(difference(expected[i], actual[i]), "") << i << " of size " << n;
  }
  expect_few_programs(compiled.stats(), 3, 24, 10);
}

/// Parameters that are wrappers, and plain data.
struct NetImpl : torch::nn::Module {
  NetImpl() {
    torch::manual_seed(3);
    weight = register_parameter("weight", two({6, 4}, true));
    bias = register_parameter("bias", two({4}, true));
  }
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor y = x.tanh().matmul(weight) + bias;
    return (y * y).mean();
  }
  at::Tensor weight, bias;
};
TORCH_MODULE(Net);

TEST(SubclassSizes, ParametersAreTrainedOutside) {
  Net eager, ours;
  auto compiled = ahead::compile(ours, {.backend = "interpreter", .fullgraph = true});
  for (const int64_t n : rounds_of(1, 64, 2)) {
    const at::Tensor batch = at::randn({n, 6});
    const at::Tensor expected = eager->forward(batch), actual = compiled(batch);
    ASSERT_EQ(difference(expected, actual), "") << n;
    for (const at::Tensor& loss : {expected, actual}) loss.backward(at::ones_like(loss.detach()));
    at::NoGradGuard no_grad;
    for (const auto& net : {eager, ours}) {
      for (const at::Tensor& parameter : net->parameters()) {
        parameter.sub_(parameter.grad() * 0.1);
        parameter.mutable_grad().reset();
      }
    }
    for (size_t i = 0; i < eager->parameters().size(); ++i)
      ASSERT_EQ(difference(eager->parameters()[i], ours->parameters()[i]), "") << n << " " << i;
  }
  expect_few_programs(compiled.stats(), 3, 64, 12);
}

/// A step for parameters of several shapes.
TEST(SubclassSizes, StepsOfAnOptimizer) {
  expect_one_program(
      [](const Tensors& x) -> Tensors {
        const at::NoGradGuard no_grad;
        x[2].mul_(0.9).add_(x[1]);
        x[0].sub_(x[2], 0.1);
        return {};
      },
      [](int64_t n) -> Tensors {
        return {two({n, 2}, true), two({n, 2}), two({n, 2})};
      });
}

/// The first of these tensors lies by rows, the second by columns with gaps.
TEST(SubclassSizes, InnerTensorsWithOtherStrides) {
  expect_one_program(
      [](const Tensors& x) -> Tensors {
        return {x[0] * 2, x[0].t().matmul(x[1]), x[0].clone()};
      },
      [](int64_t n) -> Tensors {
        const at::Tensor columns = at::randn({5, n + 3}).narrow(1, 0, n).t();
        return {TwoTensor::make(at::randn({n, 5}), columns).requires_grad_(), leaf({n, 2})};
      });
}

/// Metadata that follows from sizes is compared by value: each is observed twice, and runs from the
/// same program.
TEST(SubclassSizes, MetadataOfEachSize) {
  const CompileStats stats = compare_at(
      rounds_of(1, 20, 3),
      [](const Tensors& x) -> Tensors { return {x[0].sin().matmul(x[1])}; },
      [](int64_t n) -> Tensors {
        return {Tagged::make(at::randn({n, 3}), n).requires_grad_(), leaf({3, 2})};
      });
  expect_few_programs(stats, 3, 20, 10);
}

TEST(SubclassSizes, DecidesBySizes) {
  const CompileStats stats = compare_at(
      rounds_of(1, 40, 2),
      [](const Tensors& x) -> Tensors {
        return {x[0].size(0) > 20 ? x[0].sin() : x[0].exp().flatten()};
      },
      [](int64_t n) -> Tensors { return {two({n, 3}, true)}; });
  expect_few_programs(stats, 4, 40, 20);
}

TEST(SubclassSizes, IsCompiledForEachSizeIfThatIsWanted) {
  const CompileStats stats =
      compare_at({3, 4, 3, 4, 3, 4, 5, 5, 5},
                 [](const Tensors& x) -> Tensors { return {x[0].sin()}; },
                 [](int64_t n) -> Tensors { return {two({n, 3}, true)}; },
                 {.dynamic = Dynamic::Static});
  EXPECT_EQ(stats.compilations, 3U);
  EXPECT_EQ(stats.eager_calls, 0U);
}

TEST(SubclassSizes, MarksOfSizes) {
  auto compiled = ahead::compile([](const at::Tensor& x) { return x * 2; },
                                 {.backend = "interpreter", .fullgraph = true});
  for (const int64_t n : {4, 5, 6, 5, 6, 5, 6}) {
    const at::Tensor x = two({n, 3});
    mark_dynamic(x, 0);
    const uint64_t hits = compiled.stats().cache_hits;
    const at::Tensor y = compiled(x);
    if (compiled.stats().cache_hits == hits) continue;
    EXPECT_EQ(dynamic_dims(y), std::vector<int64_t>{0}) << n;
  }
  EXPECT_EQ(compiled.stats().compilations, 1U);
  EXPECT_GE(compiled.stats().cache_hits, 3U);
  compiled.reset();
  for (int round = 0; round < 3; ++round) {
    for (const int64_t n : {4, 5, 6}) {
      const at::Tensor x = two({n, 3});
      mark_static(x, 0);
      compiled(x);
    }
  }
  EXPECT_EQ(compiled.stats().compilations, 4U);
}

}  // namespace ahead::wrapped::sizes_test
