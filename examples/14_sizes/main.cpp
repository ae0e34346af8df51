// One program for many sizes: batches that end with a smaller one, sentences of any length, a rate
// that changes. A new size is observed once and compared with the program; from then on calls of
// that size run from it.

#include <ahead/ahead.h>
#include <torch/torch.h>

#include <cstdio>
#include <string>

#include "models/checks.h"
#include "models/same.h"

namespace {

using at::Tensor;

/// Causal attention over sentences; the mask is made for the length at hand.
struct NetImpl : torch::nn::Module {
  NetImpl() {
    register_module("embedding", embedding);
    register_module("query", query);
    register_module("head", head);
  }

  Tensor forward(const Tensor& words, const Tensor& next, double temperature) {
    const int64_t length = words.size(1);
    const Tensor x = embedding(words);
    const Tensor mask = torch::ones({length, length}).tril() == 0;
    const Tensor scores = query(x).matmul(x.transpose(1, 2)) / temperature;
    const Tensor mixed = scores.masked_fill(mask, -1e9).softmax(-1).matmul(x);
    return torch::nn::functional::cross_entropy(head(mixed).flatten(0, 1), next.flatten());
  }

  torch::nn::Embedding embedding{50, 16};
  torch::nn::Linear query{16, 16}, head{16, 50};
};
TORCH_MODULE(Net);

/// The losses of some steps, over batches and sentences of all sizes.
template <class Loss>
std::vector<Tensor> train(Net& net, Loss& loss, int64_t steps) {
  torch::manual_seed(2);
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  std::vector<Tensor> losses;
  for (int64_t step = 0; step < steps; ++step) {
    const int64_t batch = 2 + step * 5 % 7, length = 3 + step * 11 % 13;
    const Tensor words = torch::randint(50, {batch, length}, at::kLong);
    const double temperature = 4.0 - 0.01 * static_cast<double>(step);
    losses.push_back(loss(words, words.roll(-1, 1), temperature));
    optimizer.zero_grad();
    losses.back().backward();
    optimizer.step();
  }
  return losses;
}

}  // namespace

int main(int argc, char** argv) {
  const int64_t steps = argc > 1 && std::string(argv[1]) == "--quick" ? 300 : 2000;
  torch::manual_seed(1);
  Net eager;
  torch::manual_seed(1);
  Net net;
  auto compiled = ahead::compile(net);
  const auto eager_losses = train(eager, eager, steps);
  const auto losses = train(net, compiled, steps);
  models::Checks check;
  // Roundings in the last places grow as training goes on.
  check(models::same(losses, eager_losses, 1e-3), "the losses are eager's");

  const ahead::CompileStats stats = compiled.stats();
  std::printf("%lld steps over 91 sizes: %llu programs, %llu calls observed, %llu from graphs\n",
              static_cast<long long>(steps), static_cast<unsigned long long>(stats.compilations),
              static_cast<unsigned long long>(stats.observed_calls),
              static_cast<unsigned long long>(stats.cache_hits));
  check(stats.compilations <= 3, "a few programs serve all sizes");
  check(stats.eager_calls == 0, "nothing ran eagerly");

  // The program names its sizes: s0 is the batch, s1 the length.
  for (const ahead::Program& program : compiled.programs()) {
    if (program.name != "trace") continue;
    const std::string text = program.str();
    std::printf("%s…\n", text.substr(0, text.find("):")).c_str());
    break;
  }

  // Whoever wants a program for each size can have that.
  auto apart = ahead::compile([](const Tensor& x) { return x.sin() * 2; },
                              {.dynamic = ahead::Dynamic::Static});
  for (int64_t call = 0; call < 6; ++call) apart(torch::randn({2 + call % 2}));
  check(apart.stats().compilations == 2, "Dynamic::Static compiles each size on its own");

  // Or, once eight sizes agreed, do without observing new ones.
  auto trusting = ahead::compile([](const Tensor& x) { return x.sin() * 2; },
                                 {.dynamic = ahead::Dynamic::Trusting});
  for (int64_t call = 0; call < 100; ++call) trusting(torch::randn({2 + call}));
  check(trusting.stats().observed_calls < 20, "Dynamic::Trusting serves sizes that are new");

  // A mark says what changes: the second size is enough for one program.
  auto marked = ahead::compile([](const Tensor& x) { return x.sin() * 2; });
  for (int64_t call = 0; call < 2; ++call) {
    const Tensor x = torch::randn({2 + call});
    ahead::mark_dynamic(x, 0);
    marked(x);
  }
  check(marked.stats().compilations == 1, "mark_dynamic prepares for other sizes");
  return check.exit_code();
}
