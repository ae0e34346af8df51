#include <gtest/gtest.h>
#include <torch/torch.h>

#include <map>
#include <random>

#include "ahead/ahead.h"
#include "support/eager.h"

/// Derivatives up to the third of random programs full of custom functions, hooks and writes.
namespace ahead {
namespace open_trace_gradient_random_test {

using Tensors = std::vector<at::Tensor>;
using torch::autograd::AutogradContext;

struct Square : torch::autograd::Function<Square> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x) {
    context->save_for_backward({x});
    return x * x;
  }
  static Tensors backward(AutogradContext* context, const Tensors& gradients) {
    return {gradients[0] * context->get_saved_variables()[0] * 2};
  }
};

/// Saves its result, and its backward is a custom function.
struct Exp : torch::autograd::Function<Exp> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x) {
    const at::Tensor y = x.tanh().exp();
    context->save_for_backward({x, y});
    return y;
  }
  static Tensors backward(AutogradContext* context, const Tensors& gradients) {
    const Tensors saved = context->get_saved_variables();
    return {gradients[0] * saved[1] * (1 - Square::apply(saved[0].tanh()))};
  }
};

struct Once : torch::autograd::Function<Once> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& y) {
    context->save_for_backward({x, y});
    return x.sin() * y;
  }
  static Tensors backward(AutogradContext* context, const Tensors& gradients) {
    const Tensors saved = context->get_saved_variables();
    const at::Tensor of_y = gradients[0] * saved[0].sin();
    const at::NoGradGuard no_grad;
    return {gradients[0] * saved[0].cos() * saved[1], of_y};
  }
};

/// Two results, either of which may go unused.
struct Swap : torch::autograd::Function<Swap> {
  static Tensors forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& y) {
    context->save_for_backward({x, y});
    return {y.sin(), x * y};
  }
  static Tensors backward(AutogradContext* context, const Tensors& gradients) {
    const Tensors saved = context->get_saved_variables();
    at::Tensor of_x, of_y;
    if (gradients[0].defined()) of_y = gradients[0] * saved[1].cos();
    if (gradients[1].defined()) {
      of_x = gradients[1] * saved[1];
      of_y = of_y.defined() ? of_y + gradients[1] * saved[0] : gradients[1] * saved[0];
    }
    return {of_x, of_y};
  }
};

/// Names a tensor in its backward only.
struct Named : torch::autograd::Function<Named> {
  static inline const at::Tensor scale = at::linspace(-1, 1, 4).set_requires_grad(true);
  static at::Tensor forward(AutogradContext*, const at::Tensor& x) { return x.clone(); }
  static Tensors backward(AutogradContext*, const Tensors& gradients) {
    return {gradients[0] * scale};
  }
};

/// A program that is the same for the same seed.
class RandomProgram {
 public:
  explicit RandomProgram(uint64_t seed) : random_(seed) {
    for (int i = 0; i < num_steps; ++i) steps_.push_back({draw(20), draw(1 << 16), draw(1 << 16)});
    num_results_ = 1 + draw(2);
    weight_ = at::linspace(0.3, 1.1, 4).set_requires_grad(true);
  }

  Tensors operator()(const at::Tensor& x, const at::Tensor& y) const {
    Tensors pool{x, y};
    for (const Step& step : steps_) {
      const at::Tensor& a = pool[step.first % pool.size()];
      const at::Tensor& b = pool[step.second % pool.size()];
      pool.push_back(run(step.kind, a, b));
    }
    return Tensors(pool.end() - static_cast<ptrdiff_t>(num_results_), pool.end());
  }

  const at::Tensor& weight() const { return weight_; }
  bool has_hooks() const { return has_hooks_; }
  size_t draw(size_t below) { return std::uniform_int_distribution<size_t>(0, below - 1)(random_); }

 private:
  static constexpr int num_steps = 7;
  struct Step {
    size_t kind, first, second;
  };

  at::Tensor run(size_t kind, const at::Tensor& a, const at::Tensor& b) const {
    switch (kind) {
      case 0:
        return Square::apply(a);
      case 1:
        return Exp::apply(a);
      case 2:
        return Once::apply(a, b);
      case 3:
        return a * b;
      case 4:
        return a.sin() + b;
      case 5:
        return (a * weight_).tanh();
      case 6:
        return a.detach() * b;
      case 7:
        return hooked(a.cos());
      case 8:
        return a.clone().mul_(b);
      case 9:
        return written_without_history(a.sin()) * b;
      case 10:
        return written_in_part(a * 1, b);
      case 11:
        return Square::apply(a.narrow(0, 1, 1)) + b.flip(0);
      case 12:
        return Swap::apply(a, b)[0] * b;
      case 13:
        return swapped(a, b);
      case 14:
        return torch::dropout(a * b, 0.5, true);
      case 15:
        return at::where(a > b, a.softmax(0), Square::apply(b));
      case 16:
        return at::zeros({4}).copy_(a).relu_() * b;
      case 17:
        return a.unsqueeze(1).matmul(b.unsqueeze(0)).diagonal().clone();
      case 18:
        return at::cosine_similarity(a.unsqueeze(0), b.unsqueeze(0), 0) + a;
      default:
        return Named::apply(a) * b;
    }
  }

  static at::Tensor swapped(const at::Tensor& a, const at::Tensor& b) {
    const Tensors both = Swap::apply(a, b);
    return both[0].tanh() + both[1];
  }

  at::Tensor hooked(const at::Tensor& made) const {
    if (made.requires_grad()) {
      has_hooks_ = true;
      made.register_hook([](const at::Tensor& gradient) { return gradient * gradient.cos(); });
    }
    return made * 2;
  }

  static at::Tensor written_without_history(const at::Tensor& made) {
    const at::NoGradGuard no_grad;
    made.mul_(0.5);
    return made;
  }

  static at::Tensor written_in_part(const at::Tensor& made, const at::Tensor& b) {
    made.narrow(0, 0, 2).add_(b.narrow(0, 1, 2));
    return made;
  }

  std::mt19937_64 random_;
  std::vector<Step> steps_;
  size_t num_results_;
  at::Tensor weight_;
  mutable bool has_hooks_ = false;
};

/// What is differentiated by what, one order after the other. Tangents are constant, since sums of
/// gradients that come in several ways may be rounded in another order.
struct Question {
  std::vector<bool> results;
  std::vector<std::vector<bool>> targets;
};

Question ask(RandomProgram& program) {
  Question question;
  question.results = {program.draw(3) != 0, program.draw(3) != 0};
  for (int order = 0; order < 3; ++order) {
    question.targets.push_back({program.draw(3) != 0, program.draw(3) != 0, program.draw(3) != 0});
  }
  return question;
}

/// All derivatives asked for, undefined where there are none.
template <class F>
Tensors answer(const Question& question, F&& f, const Tensors& leaves) {
  torch::manual_seed(5);
  const Tensors results = f(leaves[0], leaves[1]);
  Tensors all, roots;
  for (size_t i = 0; i < results.size(); ++i) {
    all.push_back(results[i].detach());
    if (question.results[i] && results[i].requires_grad()) roots.push_back(results[i]);
  }
  for (const std::vector<bool>& wanted : question.targets) {
    Tensors targets, tangents;
    for (size_t i = 0; i < leaves.size(); ++i) {
      if (wanted[i]) targets.push_back(leaves[i]);
    }
    if (roots.empty() || targets.empty()) break;
    for (const at::Tensor& root : roots) tangents.push_back(at::linspace(0.5, 1.5, root.numel()));
    const Tensors gradients = torch::autograd::grad(roots, targets, tangents, /*retain_graph=*/true,
                                                    /*create_graph=*/true, /*allow_unused=*/true);
    all.insert(all.end(), gradients.begin(), gradients.end());
    roots.clear();
    for (const at::Tensor& gradient : gradients) {
      if (gradient.defined() && gradient.requires_grad()) roots.push_back(gradient);
    }
  }
  return all;
}

enum class Outcome { Same, RanEagerly, HookRanEagerly, NotOfEager };

Outcome compare(uint64_t seed) {
  RandomProgram program(seed);
  const auto f = [&](const at::Tensor& x, const at::Tensor& y) { return program(x, y); };
  auto compiled = compile(f);
  torch::manual_seed(seed);
  const Tensors leaves{at::randn({4}).set_requires_grad(true),
                       at::randn({4}).set_requires_grad(true), program.weight()};
  for (int call = 0; call < 3; ++call) {
    const Question question = ask(program);
    Tensors expected, actual;
    try {
      expected = answer(question, f, leaves);
    } catch (const c10::Error&) {
      return Outcome::NotOfEager;
    }
    try {
      actual = answer(question, compiled, leaves);
    } catch (const Unsupported& error) {
      ADD_FAILURE() << "seed " << seed << ", call " << call << ": " << error.msg();
    }
    EXPECT_EQ(expected.size(), actual.size()) << "seed " << seed;
    for (size_t i = 0; i < expected.size() && i < actual.size(); ++i) {
      // A function with hooks has several programs, whose gradients are added up one by one.
      const bool is_same =
          program.has_hooks()
              ? expected[i].defined() == actual[i].defined() &&
                    (!expected[i].defined() || at::allclose(expected[i], actual[i], 1e-3, 1e-5))
              : tensor_difference(expected[i], actual[i]).empty();
      EXPECT_TRUE(is_same) << "seed " << seed << ", call " << call << ", number " << i << ": "
                           << tensor_difference(expected[i], actual[i]);
      EXPECT_EQ(expected[i].defined() && expected[i].requires_grad(),
                actual[i].defined() && actual[i].requires_grad())
          << "seed " << seed << ", call " << call << ", number " << i;
    }
  }
  if (compiled.stats().eager_calls == 0) return Outcome::Same;
  return program.has_hooks() ? Outcome::HookRanEagerly : Outcome::RanEagerly;
}

TEST(OpenTraceGradient, RandomPrograms) {
  constexpr uint64_t num_programs = 200;
  std::map<Outcome, size_t> outcomes;
  for (uint64_t seed = 0; seed < num_programs && !testing::Test::HasFailure(); ++seed)
    ++outcomes[compare(seed)];
  // Those that have hooks beside custom functions run eagerly.
  EXPECT_GT(outcomes[Outcome::Same], (num_programs - outcomes[Outcome::HookRanEagerly]) * 3 / 4)
      << outcomes[Outcome::RanEagerly] << " ran eagerly, " << outcomes[Outcome::NotOfEager]
      << " do not work in eager";
}

}  // namespace open_trace_gradient_random_test
}  // namespace ahead
