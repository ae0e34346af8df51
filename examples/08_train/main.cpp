// Trains a small GPT on the letters of a story, three times from the same seed: eagerly, compiled,
// and compiled with the backward captured by compiled autograd as well. The losses must be the same
// but for roundings, which grow as training goes on. The first two steps of a compiled model run
// the model itself, watched; from then on kernels run, and steps 4, 8, 16 and so on look again.
//
//   08_train [--quick]      --quick: a few steps only

#include <ahead/ahead.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <random>
#include <set>
#include <string_view>

#include "models/memory.h"
#include "models/models.h"
#include "models/progress.h"
#include "models/timing.h"
#include "plot.h"
#include "text.h"

namespace {

using at::Tensor;

constexpr int64_t batch_size = 12;
constexpr size_t sample_length = 160;

/// The story as numbers, one for each letter.
struct Letters {
  Letters() {
    const std::set<char> distinct(story.begin(), story.end());
    alphabet.assign(distinct.begin(), distinct.end());
    std::vector<int64_t> codes;
    for (const char letter : story) codes.push_back(static_cast<int64_t>(alphabet.find(letter)));
    text = torch::tensor(codes);
  }

  std::string alphabet;
  Tensor text;
};

struct Batch {
  Tensor tokens, targets;
};

/// Pieces of the story; the targets are the letters that follow.
Batch draw(const Letters& letters, int64_t context, std::mt19937& random) {
  std::uniform_int_distribution<int64_t> start(0, letters.text.size(0) - context - 1);
  std::vector<Tensor> tokens, targets;
  for (int64_t i = 0; i < batch_size; ++i) {
    const int64_t at = start(random);
    tokens.push_back(letters.text.slice(0, at, at + context));
    targets.push_back(letters.text.slice(0, at + 1, at + context + 1));
  }
  return {torch::stack(tokens), torch::stack(targets)};
}

/// A model in training. Models made with the same options are equal.
class Training {
 public:
  using Forward = std::function<Tensor(const Tensor&, const Tensor&)>;

  explicit Training(models::GptOptions options) : model(make(options)) {}

  void step(const Forward& forward, const Batch& batch, models::MemoryCounter& memory) {
    const int64_t bytes = memory.peak([&] {
      Tensor loss = forward(batch.tokens, batch.targets);
      loss.backward();
      optimizer_.step();
      optimizer_.zero_grad();
      losses.push_back(loss.item<double>());
    });
    peaks.push_back(static_cast<double>(bytes));
  }

  models::Gpt model;
  std::vector<double> losses;
  /// The most memory that each step took, in bytes, beyond what was there before it.
  std::vector<double> peaks;

 private:
  static models::Gpt make(models::GptOptions options) {
    torch::manual_seed(0);
    return models::Gpt(options);
  }

  torch::optim::AdamW optimizer_{model->parameters(), torch::optim::AdamWOptions(3e-3)};
};

/// The largest difference of the losses of the first steps.
double largest_difference(const Training& a, const Training& b, size_t steps) {
  double largest = 0;
  for (size_t i = 0; i < std::min(steps, a.losses.size()); ++i) {
    const double difference = std::abs(a.losses[i] - b.losses[i]);
    largest = std::isnan(difference) ? INFINITY : std::max(largest, difference);
  }
  return largest;
}

/// How the trained model tells the story on from its beginning, always by the likeliest letter.
std::string sample(models::Gpt& model, const Letters& letters, int64_t context) {
  torch::NoGradGuard no_grad;
  Tensor window = letters.text.slice(0, 0, context);
  std::string text;
  while (text.size() < sample_length) {
    Tensor next = model->logits(window.unsqueeze(0))[0][-1].argmax();
    text += letters.alphabet[static_cast<size_t>(next.item<int64_t>())];
    window = torch::cat({window.slice(0, 1), next.unsqueeze(0)});
  }
  return text;
}

void print_row(const char* name, const Training& training, double milliseconds, double ratio) {
  std::printf("%-22s  %10.6f  %10.2f  %10.3f  %14.2f\n", name, training.losses.back(), milliseconds,
              ratio, 1e-6 * models::median(training.peaks));
}

/// Says how many steps ran the model itself and how many ran graphs; true if calls 1, 2, 4, 8, …
/// did the one and all others the other.
bool count_steps(const char* name, const ahead::CompileStats& stats) {
  std::printf("%s: %llu of %llu steps were observed, %llu ran from graphs.\n", name,
              static_cast<unsigned long long>(stats.observed_calls),
              static_cast<unsigned long long>(stats.calls),
              static_cast<unsigned long long>(stats.cache_hits));
  uint64_t observed = 0;
  for (uint64_t call = 1; call <= stats.calls; call *= 2) ++observed;
  return stats.observed_calls == observed && stats.cache_hits == stats.calls - observed;
}

/// Says how a training differs from the eager one; true if by no more than roundings.
bool compare(const char* name, const Training& eager, const Training& training) {
  const double soon = largest_difference(eager, training, 12),
               later = largest_difference(eager, training, eager.losses.size());
  std::printf("%s: largest difference of the losses of 12 steps %.1e, of all %.1e.\n", name, soon,
              later);
  return soon < 1e-3 && later < 0.1;
}

}  // namespace

int main(int argc, char** argv) {
  const bool quick = argc > 1 && std::string_view(argv[1]) == "--quick";
  const size_t steps = quick ? 12 : 240;
  const Letters letters;
  models::GptOptions options;
  options.layers = 3;
  options.width = 96;
  options.heads = 4;
  options.vocabulary = static_cast<int64_t>(letters.alphabet.size());
  options.context = 48;

  models::MemoryCounter memory;
  Training eager(options), compiled(options), captured(options);
  auto forward = ahead::compile(compiled.model, {.fullgraph = true});
  auto captured_forward = ahead::compile(captured.model, {.fullgraph = true});
  const Training::Forward run_eager = [&](const Tensor& tokens, const Tensor& targets) {
    return eager.model->forward(tokens, targets);
  };

  // All take each step one after the other, so that whatever else the machine does meets all.
  std::mt19937 random(0);
  models::Pairs times, captured_times;
  {
    models::Progress progress;
    for (size_t i = 1; i <= steps; ++i) {
      const Batch batch = draw(letters, options.context, random);
      times.run([&] { eager.step(run_eager, batch, memory); },
                [&] { compiled.step(std::ref(forward), batch, memory); });
      {
        ahead::compiled_autograd::Enable on({.fullgraph = true});
        captured_times.second.push_back(models::milliseconds(
            [&] { captured.step(std::ref(captured_forward), batch, memory); }));
      }
      captured_times.ratios.push_back(captured_times.second.back() / times.first.back());
      char loss[32];
      std::snprintf(loss, sizeof loss, "loss %.3f", compiled.losses.back());
      progress.bar(loss, i, steps);
    }
  }

  const Curve eager_curve{"eager", eager.losses}, curve{"ahead::compile", compiled.losses};
  std::printf("%s\n", letter_plot(eager_curve, curve).c_str());
  std::filesystem::create_directories("out");
  std::ofstream("out/training.svg") << svg_plot(eager_curve, curve);

  std::printf("%-22s  %10s  %10s  %10s  %14s\n", "", "last loss", "step (ms)", "by eager",
              "step peak (MB)");
  print_row("eager", eager, models::median(times.first), 1);
  print_row("ahead::compile", compiled, models::median(times.second), models::median(times.ratios));
  print_row("+ compiled autograd", captured, models::median(captured_times.second),
            models::median(captured_times.ratios));
  std::printf("\nCompiling took %.0f ms, kernels included, capturing the backward %.0f ms.\n",
              1e3 * (forward.stats().trace_seconds + forward.stats().compile_seconds),
              1e3 * ahead::compiled_autograd::stats().capture_seconds);
  const bool same =
      compare("ahead::compile", eager, compiled) & compare("+ compiled autograd", eager, captured);
  const bool counted = count_steps("ahead::compile", forward.stats()) &
                       count_steps("+ compiled autograd", captured_forward.stats());
  std::printf("Wrote the curves to out/training.svg.\n\nThe model tells the story on:\n%s...\n",
              sample(compiled.model, letters, options.context).c_str());
  if (!same) std::fprintf(stderr, "A compiled model trains differently from the eager one.\n");
  if (!counted) std::fprintf(stderr, "A compiled model did not run from graphs where it should.\n");
  return same && counted ? 0 : 1;
}
