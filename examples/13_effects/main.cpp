// Operators that do something besides computing: they print, count, or fill a queue. In a compiled
// function they happen in every call, once, in order.

#include <ahead/ahead.h>
#include <torch/custom_class.h>
#include <torch/library.h>

#include "models/checks.h"

namespace {

using at::Tensor;

// An object of your own, and an operator that is given it: that is an effect without further ado.
struct Meter : torch::CustomClassHolder {
  int64_t calls = 0;
  double total = 0;
};

void measure(const c10::intrusive_ptr<Meter>& meter, const Tensor& loss) {
  ++meter->calls;
  meter->total += loss.item<double>();
}

// Of an operator with results nobody knows what it does; its author says so.
int64_t num_clones = 0;
Tensor counted_clone(const Tensor& x) {
  ++num_clones;
  return x.clone();
}

TORCH_LIBRARY(lesson, m) {
  m.class_<Meter>("Meter").def(torch::init<>());
  m.def("measure(__torch__.torch.classes.lesson.Meter meter, Tensor loss) -> ()");
  m.def("counted_clone(Tensor x) -> Tensor");
}

TORCH_LIBRARY_IMPL(lesson, CompositeExplicitAutograd, m) {
  m.impl("measure", measure);
  m.impl("counted_clone", counted_clone);
}

template <class Signature, class... Args>
auto call(const char* name, const Args&... args) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Signature>().call(args...);
}

}  // namespace

int main() {
  models::Checks check;
  torch::manual_seed(0);
  ahead::declare_effect("lesson::counted_clone");

  auto meter = c10::make_intrusive<Meter>();
  Tensor w = torch::randn({3}).requires_grad_();
  auto step = ahead::compile(
      [&](const Tensor& x) {
        Tensor loss = (x * w - 1).square().mean();
        ahead::print("loss {}", loss);
        call<void(const c10::intrusive_ptr<Meter>&, const Tensor&)>("lesson::measure", meter, loss);
        call<Tensor(const Tensor&)>("lesson::counted_clone", x);  // nobody uses it, it happens
        return loss;
      },
      {.fullgraph = true});

  constexpr int64_t steps = 6;
  double total = 0;
  for (int64_t i = 0; i < steps; ++i) {
    Tensor loss = step(torch::ones({3}));
    loss.backward();
    total += loss.item<double>();
    torch::NoGradGuard no_grad;
    w.sub_(w.grad(), 0.5);
    w.grad().zero_();
  }
  std::printf("%lld calls from graphs, %lld measured\n",
              static_cast<long long>(step.stats().cache_hits),
              static_cast<long long>(meter->calls));
  check(step.stats().cache_hits >= 3, "most calls ran from graphs");
  check(meter->calls == steps && meter->total == total, "every loss was measured once");
  check(num_clones == steps, "a call whose result nobody uses happens as well");

  // A backend that runs nodes in any order asks for tokens, which make the order a matter of
  // operands.
  ahead::Graph graph = ahead::trace(
      [](const std::vector<Tensor>& in) {
        ahead::print("one");
        ahead::print("two {}", in[0]);
        return std::vector<Tensor>{in[0] * 2};
      },
      {torch::ones({})});
  check(ahead::lift_effect_tokens(graph) == 2, "two effects have a token");
  std::printf("\nThe order as tokens:\n%s\n", graph.str().c_str());
  ahead::interpret(graph, {torch::empty({0}), torch::ones({})});
  return check.exit_code();
}
