#include "sizes/training.h"
#include "support/new_process.h"
#include "support/resident_memory.h"

/// Models as people write them, trained with batches of all sizes.
namespace ahead {
namespace batches_test {

using at::Tensor;
using Tensors = std::vector<Tensor>;
namespace nn = torch::nn;
namespace F = torch::nn::functional;

Tensors images_and_labels(int64_t n, int64_t height = 12, int64_t width = 12) {
  return {torch::randn({n, 3, height, width}), torch::randint(10, {n}, at::kLong)};
}

Tensors tokens_and_targets(int64_t batch, int64_t length) {
  return {torch::randint(40, {batch, length}, at::kLong),
          torch::randint(40, {batch, length}, at::kLong)};
}

struct MlpImpl : nn::Module {
  MlpImpl() {
    register_module("first", first);
    register_module("second", second);
  }
  Tensor forward(const Tensors& in) {
    const Tensor x = second(torch::relu(first(in[0].flatten(1))));
    return F::cross_entropy(x, in[1]);
  }
  nn::Linear first{432, 24}, second{24, 10};
};
TORCH_MODULE(Mlp);

TEST(Batches, Mlp) {
  const CompileStats stats = train_side_by_side<Mlp>(
      [] { return Mlp(); }, [](int64_t n) { return images_and_labels(n); }, rounds_of(1, 64, 3));
  expect_few_programs(stats, 3, 64, 12);
}

/// Hooks divide the function.
struct HookedMlpImpl : MlpImpl {
  Tensor forward(const Tensors& in) {
    const Tensor x = torch::relu(first(in[0].flatten(1)));
    x.register_hook([](const Tensor& gradient) { return gradient * 0.5; });
    x.register_hook([](const Tensor& gradient) { return gradient.clamp_max(0.01); });
    return F::cross_entropy(second(x), in[1]);
  }
};
TORCH_MODULE(HookedMlp);

TEST(Batches, MlpWithHooks) {
  const CompileStats stats = train_side_by_side<HookedMlp>(
      [] { return HookedMlp(); }, [](int64_t n) { return images_and_labels(n); },
      rounds_of(1, 64, 3));
  // Where it cannot be told that hooks captured the same, a size is observed once more.
  EXPECT_EQ(stats.eager_calls, 0U);
  EXPECT_LE(stats.compilations, 3U);
  EXPECT_GT(stats.cache_hits, 16U);
}

/// Rounds, and lets gradients through where that is not far.
struct Rounded : torch::autograd::Function<Rounded> {
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& x) {
    context->save_for_backward({x});
    return (x * 4).round() / 4;
  }
  static Tensors backward(torch::autograd::AutogradContext* context, const Tensors& gradients) {
    const Tensor x = context->get_saved_variables()[0];
    return {gradients[0] * (x.abs() < 1) * x};
  }
};

struct RoundedMlpImpl : MlpImpl {
  Tensor forward(const Tensors& in) {
    const Tensor x = Rounded::apply(first(in[0].flatten(1)));
    return F::cross_entropy(second(x.relu()), in[1]);
  }
};
TORCH_MODULE(RoundedMlp);

TEST(Batches, MlpWithCustomFunction) {
  const CompileStats stats = train_side_by_side<RoundedMlp>(
      [] { return RoundedMlp(); }, [](int64_t n) { return images_and_labels(n); },
      rounds_of(1, 64, 3));
  expect_few_programs(stats, 3, 64, 12);
}

/// The second derivative is that of the function's own backward, for each size.
TEST(Batches, SecondDerivativesOfCustomFunctions) {
  const Tensor w = torch::randn({6, 5}).requires_grad_();
  const auto f = [&](const Tensor& x) { return Rounded::apply(x.matmul(w).tanh()).exp(); };
  auto compiled = compile(f);
  const auto second = [&](const auto& function, const Tensor& x) {
    const Tensor y = function(x);
    const Tensor first = torch::autograd::grad({y.sum()}, {w}, {}, true, true)[0];
    Tensors all = torch::autograd::grad({first.pow(2).sum()}, {w, x});
    all.push_back(y.detach());
    all.push_back(first.detach());
    return all;
  };
  for (const int64_t size : rounds_of(1, 12, 3)) {
    const Tensor x = torch::randn({size, 6}).requires_grad_();
    expect_same(second(f, x), second(compiled, x));
    if (HasFailure()) return;
  }
  EXPECT_EQ(compiled.stats().eager_calls, 0U);
  EXPECT_LE(compiled.stats().compilations, 3U);
  EXPECT_GT(compiled.stats().cache_hits, 12U);
}

/// Beside these the function draws random numbers, and writes to arguments and to a buffer.
TEST(Batches, SecondDerivativesOfCustomFunctionsBesideWrites) {
  const auto make = [](const Tensor& w, const Tensor& buffer) {
    return [w, buffer](const Tensor& x, Tensor& sums, Tensor& computed) {
      const Tensor y = torch::dropout(Rounded::apply(x.matmul(w).tanh()), 0.3, true);
      buffer.mul_(0.5).add_(y.detach().mean());
      computed.mul_(x.detach());
      sums.add_(computed.sum(1) * 2);
      return y.exp() * sums.sum();
    };
  };
  const auto second = [](const auto& function, const Tensor& w, int64_t size) {
    torch::manual_seed(size);
    const Tensor x = torch::randn({size, 6}).requires_grad_();
    Tensor sums = torch::ones({size});
    Tensor computed = torch::randn({size, 6}).requires_grad_() * 3;
    const Tensor y = function(x, sums, computed);
    const Tensor first = torch::autograd::grad({y.sum()}, {x}, {}, true, true)[0];
    Tensors all = torch::autograd::grad({first.pow(2).sum()}, {w, x});
    all.insert(all.end(), {y.detach(), first.detach(), sums.detach(), computed.detach()});
    return all;
  };
  const Tensor w = torch::randn({6, 5}).requires_grad_();
  const Tensor expected_buffer = torch::zeros({}), buffer = torch::zeros({});
  const auto eager = make(w, expected_buffer);
  auto compiled = compile(make(w, buffer));
  for (const int64_t size : rounds_of(1, 16, 3)) {
    expect_same(second(eager, w, size), second(compiled, w, size));
    expect_same({expected_buffer}, {buffer});
    if (HasFailure()) return;
  }
  expect_few_programs(compiled.stats(), 3, 16, 12);
}

/// What it captured looks otherwise by the time that somebody asks for a second derivative.
TEST(Batches, SecondDerivativesOfWhatWasChanged) {
  Tensor w = torch::randn({6, 5}).requires_grad_();
  auto compiled = compile([&](const Tensor& x) { return Rounded::apply(x.matmul(w)).exp(); });
  Tensor y;
  const Tensor x = torch::randn({4, 6}).requires_grad_();
  for (const int64_t size : {2, 3, 5, 4, 4})
    y = compiled(size == 4 ? x : torch::randn({size, 6}).requires_grad_());
  EXPECT_EQ(compiled.stats().cache_hits, 1U);
  const Tensor first = torch::autograd::grad({y.sum()}, {x}, {}, true, false)[0];
  w.requires_grad_(false);
  EXPECT_THROW(torch::autograd::grad({y.sum()}, {x}, {}, true, true), Unsupported);
  w.requires_grad_(true);
  expect_same({first}, {torch::autograd::grad({y.sum()}, {x}, {}, true, true)[0].detach()});
}

TEST(Batches, WritesToPartsOfWhatHasAGradient) {
  const Tensor w = torch::randn({6, 5}).requires_grad_();
  const auto f = [&](const Tensor& x) {
    const Tensor y = x.matmul(w) * 3;
    y.select(0, 0).mul_(2);
    y.slice(1, 0, 2).copy_(y.slice(1, 2, 4).exp());
    return y.pow(2);
  };
  auto compiled = compile(f);
  for (const int64_t size : rounds_of(1, 32, 3)) {
    const Tensor x = torch::randn({size, 6});
    const Tensor expected = f(x), actual = compiled(x);
    expect_same({expected.detach()}, {actual.detach()});
    const bool twice = size % 5 == 0;
    const Tensor a = torch::autograd::grad({expected.sum()}, {w}, {}, twice, twice)[0];
    const Tensor b = torch::autograd::grad({actual.sum()}, {w}, {}, twice, twice)[0];
    expect_same({a.detach()}, {b.detach()});
    if (twice)
      expect_same(torch::autograd::grad({a.pow(2).sum()}, {w}),
                  torch::autograd::grad({b.pow(2).sum()}, {w}));
    if (HasFailure()) return;
  }
  EXPECT_EQ(compiled.stats().eager_calls, 0U);
  EXPECT_LE(compiled.stats().compilations, 3U);
}

TEST(Batches, ArgumentsThatShareMemoryAndAreWrittenTo) {
  const auto f = [](const Tensor& a, const Tensor& b) {
    a.mul_(2);
    b.add_(a.sum());
    return a.sin() + b.cos();
  };
  auto compiled = compile(f);
  // How large the one memory is says nothing of how large its parts are: each size is observed
  // twice.
  for (const int64_t size : rounds_of(2, 9, 6)) {
    const Tensor mine = torch::randn({size + 2, 3}), theirs = mine.clone();
    const auto call = [&](const auto& function, const Tensor& all) {
      return function(all.slice(0, 0, size), all.slice(0, 2, size + 2));
    };
    expect_same({call(f, mine)}, {call(compiled, theirs)});
    expect_same({mine}, {theirs});
    if (HasFailure()) return;
  }
  EXPECT_EQ(compiled.stats().eager_calls, 0U);
  EXPECT_LE(compiled.stats().compilations, 3U);
  EXPECT_GT(compiled.stats().cache_hits, 16U);
}

/// Notes in a tensor of the caller's how large gradients are.
struct Watched : torch::autograd::Function<Watched> {
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& x,
                        const Tensor& largest) {
    context->save_for_backward({largest});
    return x * 3;
  }
  static Tensors backward(torch::autograd::AutogradContext* context, const Tensors& gradients) {
    Tensor largest = context->get_saved_variables()[0];
    largest.copy_(torch::max(largest, gradients[0].abs().max()));
    return {gradients[0] * 3, Tensor()};
  }
};

TEST(Batches, BackwardsThatWrite) {
  const Tensor w = torch::randn({6, 5}).requires_grad_();
  const auto f = [&](const Tensor& x, const Tensor& largest) {
    return Watched::apply(x.matmul(w).tanh(), largest).pow(2).sum();
  };
  auto compiled = compile(f);
  const Tensor mine = torch::zeros({}), theirs = torch::zeros({});
  for (const int64_t size : rounds_of(1, 32, 3)) {
    const Tensor x = torch::randn({size, 6});
    const Tensor expected = f(x, mine), actual = compiled(x, theirs);
    expect_same({expected.detach()}, {actual.detach()});
    expect_same(torch::autograd::grad({expected}, {w}), torch::autograd::grad({actual}, {w}));
    expect_same({mine}, {theirs});
    if (HasFailure()) return;
  }
  EXPECT_EQ(compiled.stats().eager_calls, 0U);
  EXPECT_LE(compiled.stats().compilations, 3U);
}

struct BlockImpl : nn::Module {
  BlockImpl() {
    register_module("norm1", norm1);
    register_module("norm2", norm2);
    register_module("qkv", qkv);
    register_module("out", out);
    register_module("up", up);
    register_module("down", down);
  }
  Tensor forward(Tensor x) {
    const int64_t batch = x.size(0), length = x.size(1), width = x.size(2);
    std::vector<Tensor> parts = qkv(norm1(x)).split(width, 2);
    for (Tensor& part : parts)
      part = part.view({batch, length, heads, width / heads}).transpose(1, 2);
    const Tensor mask = torch::ones({length, length}).tril().to(at::kBool);
    const double scale = std::sqrt(static_cast<double>(width) / static_cast<double>(heads));
    const Tensor weights =
        (parts[0].matmul(parts[1].transpose(-1, -2)) / scale).masked_fill(~mask, -1e9).softmax(-1);
    x = x + out(weights.matmul(parts[2]).transpose(1, 2).reshape({batch, length, width}));
    return x + down(F::gelu(up(norm2(x))));
  }
  int64_t heads = 2;
  nn::LayerNorm norm1{nn::LayerNormOptions({16})}, norm2{nn::LayerNormOptions({16})};
  nn::Linear qkv{16, 48}, out{16, 16}, up{16, 64}, down{64, 16};
};
TORCH_MODULE(Block);

/// Masks and slices of positions are made inside.
struct GptImpl : nn::Module {
  GptImpl() {
    register_module("embedding", embedding);
    positions = register_parameter("positions", torch::randn({256, 16}));
    register_module("block1", block1);
    register_module("block2", block2);
    register_module("head", head);
  }
  Tensor forward(const Tensors& in) {
    Tensor x = embedding(in[0]) + positions.slice(0, 0, in[0].size(1));
    x = head(block2(block1(x)));
    return F::cross_entropy(x.flatten(0, 1), in[1].flatten());
  }
  nn::Embedding embedding{40, 16};
  Tensor positions;
  Block block1, block2;
  nn::Linear head{16, 40};
};
TORCH_MODULE(Gpt);

TEST(Batches, Gpt) {
  const CompileStats stats = train_side_by_side<Gpt>(
      [] { return Gpt(); }, [](int64_t n) { return tokens_and_targets(n, 9); },
      rounds_of(1, 64, 2));
  expect_few_programs(stats, 3, 64, 12);
}

TEST(Batches, GptOverLengths) {
  std::vector<int64_t> lengths = shuffled(5, 200);
  lengths.resize(60);
  const std::vector<int64_t> again = lengths;
  lengths.insert(lengths.end(), again.begin(), again.end());
  const CompileStats stats = train_side_by_side<Gpt>(
      [] { return Gpt(); }, [](int64_t length) { return tokens_and_targets(2, length); }, lengths);
  expect_few_programs(stats, 3, 60, 12);
}

struct ResNetImpl : nn::Module {
  ResNetImpl() {
    register_module("stem", stem);
    register_module("conv", conv);
    register_module("norm1", norm1);
    register_module("norm2", norm2);
    register_module("head", head);
  }
  Tensor forward(const Tensors& in) {
    Tensor x = torch::relu(norm1(stem(in[0])));
    x = torch::relu(norm2(conv(x)) + x);
    x = F::max_pool2d(x, F::MaxPool2dFuncOptions(2));
    x = F::adaptive_avg_pool2d(x, F::AdaptiveAvgPool2dFuncOptions(1)).flatten(1);
    return F::cross_entropy(head(x), in[1]);
  }
  nn::Conv2d stem{nn::Conv2dOptions(3, 8, 3).padding(1)};
  nn::Conv2d conv{nn::Conv2dOptions(8, 8, 3).padding(1)};
  nn::BatchNorm2d norm1{8}, norm2{8};
  nn::Linear head{8, 10};
};
TORCH_MODULE(ResNet);

TEST(Batches, ResNetWithBatchNorm) {
  const CompileStats stats = train_side_by_side<ResNet>(
      [] { return ResNet(); }, [](int64_t n) { return images_and_labels(n); }, rounds_of(1, 64, 2));
  expect_few_programs(stats, 3, 64, 12);
}

TEST(Batches, ResNetOverImageSizes) {
  const CompileStats stats = train_side_by_side<ResNet>(
      [] { return ResNet(); }, [](int64_t n) { return images_and_labels(2, 8 + n, 9 + n % 5); },
      rounds_of(2, 20, 3));
  expect_few_programs(stats, 4, 19, 12);
}

/// A convolutional net that flattens by hand.
struct FlatNetImpl : nn::Module {
  FlatNetImpl() {
    register_module("conv", conv);
    register_module("head", head);
  }
  Tensor forward(const Tensors& in) {
    const Tensor x = torch::relu(conv(in[0]));
    return F::cross_entropy(head(x.view({x.size(0), x.size(1) * x.size(2) * x.size(3)})), in[1]);
  }
  nn::Conv2d conv{nn::Conv2dOptions(3, 4, 3)};
  nn::Linear head{400, 10};
};
TORCH_MODULE(FlatNet);

TEST(Batches, FlattenedByHand) {
  const CompileStats stats = train_side_by_side<FlatNet>(
      [] { return FlatNet(); }, [](int64_t n) { return images_and_labels(n); },
      rounds_of(1, 64, 2));
  expect_few_programs(stats, 3, 64, 12);
}

template <class Layer>
struct RecurrentImpl : nn::Module {
  RecurrentImpl() {
    register_module("layer", layer);
    register_module("head", head);
  }
  Tensor forward(const Tensors& in) {
    return F::mse_loss(head(std::get<0>(layer(in[0]))[-1]), in[1]);
  }
  Layer layer{6, 8};
  nn::Linear head{8, 3};
};
struct LstmImpl : RecurrentImpl<nn::LSTM> {};
TORCH_MODULE(Lstm);
struct GruImpl : RecurrentImpl<nn::GRU> {};
TORCH_MODULE(Gru);

Tensors sequences(int64_t batch) {
  return {torch::randn({7, batch, 6}), torch::randn({batch, 3})};
}

TEST(Batches, Lstm) {
  const CompileStats stats =
      train_side_by_side<Lstm>([] { return Lstm(); }, sequences, rounds_of(1, 64, 2));
  expect_few_programs(stats, 3, 64, 12);
}

TEST(Batches, Gru) {
  const CompileStats stats =
      train_side_by_side<Gru>([] { return Gru(); }, sequences, rounds_of(1, 64, 2));
  expect_few_programs(stats, 3, 64, 12);
}

struct EncoderImpl : nn::Module {
  EncoderImpl() { register_module("encoder", encoder); }
  Tensor forward(const Tensors& in) { return encoder->forward(in[0], {}, in[1]).pow(2).mean(); }
  nn::TransformerEncoder encoder{
      nn::TransformerEncoderOptions(nn::TransformerEncoderLayerOptions(8, 2).dropout(0.1), 2)};
};
TORCH_MODULE(Encoder);

TEST(Batches, TransformerEncoderWithPaddingMasks) {
  const auto inputs = [](int64_t batch) {
    const Tensor mask = torch::arange(5).unsqueeze(0) >= torch::randint(2, 6, {batch, 1});
    return Tensors{torch::randn({5, batch, 8}), mask};
  };
  const CompileStats stats =
      train_side_by_side<Encoder>([] { return Encoder(); }, inputs, rounds_of(1, 64, 2));
  expect_few_programs(stats, 3, 64, 12);
}

/// Random operators take and give states, whose numbers are as many as the sizes say.
TEST(Batches, TransformerEncoderWithRandomNumbersFromStates) {
  const auto inputs = [](int64_t batch) {
    return Tensors{torch::randn({5, batch, 8}), torch::zeros({batch, 5}, at::kBool)};
  };
  const CompileStats stats =
      train_side_by_side<Encoder>([] { return Encoder(); }, inputs, rounds_of(1, 32, 2),
                                  {.backend = "interpreter", .functionalize_rng = true});
  expect_few_programs(stats, 3, 32, 12);
}

/// Dropout in a checkpointed region runs again in the backward, and the generator goes on where
/// eager's does.
TEST(Batches, RandomNumbersFromStatesAndThoseThatFollow) {
  const auto make = [](const Tensor& w) {
    return [w](const Tensor& x) {
      const auto block = [&w](const Tensor& in) {
        return torch::tanh(torch::dropout(in, 0.3, true).mm(w));
      };
      const Tensor y = checkpoint(CheckpointPolicy::recompute_everything(), block, x);
      return torch::dropout(y, 0.5, true).pow(2).mean() + torch::rand_like(y).mean();
    };
  };
  const Tensor w = torch::randn({8, 8}).requires_grad_(), same = w.detach().clone();
  const auto f = make(w);
  auto compiled =
      compile(make(same.requires_grad_()), {.backend = "interpreter", .functionalize_rng = true});
  const auto step = [](const auto& function, const Tensor& weight, const Tensor& x) {
    torch::manual_seed(x.size(0));
    const Tensor loss = function(x);
    const Tensor between = torch::rand({3});
    const Tensor gradient = torch::autograd::grad({loss}, {weight})[0];
    return Tensors{loss.detach(), between, gradient, torch::rand({3})};
  };
  for (const int64_t size : rounds_of(1, 24, 3)) {
    const Tensor x = torch::randn({size, 8});
    expect_same(step(f, w, x), step(compiled, same, x));
    if (HasFailure()) return;
  }
  EXPECT_EQ(compiled.stats().eager_calls, 0U);
  EXPECT_LE(compiled.stats().compilations, 3U);
  EXPECT_GT(compiled.stats().cache_hits, 36U);
}

TEST(Batches, MemoryStaysWhereSizesAscend) {
  test::expect_in_new_process([] {
    at::set_num_threads(1);
    torch::nn::Sequential net(torch::nn::Linear(8, 512), torch::nn::ReLU(),
                              torch::nn::Linear(512, 8), torch::nn::ReLU(),
                              torch::nn::Linear(8, 512));
    auto compiled = compile(net);
    const int64_t first = test::resident_memory_as_it_is();
    int64_t most = first;
    for (int64_t size = 2; size < 2400; size += 4) {
      const at::Tensor x = torch::randn({size, 8});
      mark_dynamic(x, 0);  // each new size is observed, and has an entry that stays
      compiled(x).sum().backward();
      most = std::max(most, test::resident_memory_as_it_is());
    }
    std::cerr << "grown by " << ((most - first) >> 20) << " MB\n";
    return compiled.stats().eager_calls == 0 && most - first < (int64_t{256} << 20);
  });
}

}  // namespace batches_test
}  // namespace ahead
