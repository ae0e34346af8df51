// Looks into a compiled function: the program of every stage, why a call does or does not fit, and
// what has happened so far.

#include <ahead/ahead.h>

#include "models/checks.h"
#include "models/models.h"
#include "models/same.h"

namespace {

using at::Tensor;

Tensor f(const Tensor& x, const Tensor& w) {
  Tensor y = x.matmul(w).t().t();  // the views cancel out
  return (y.sigmoid() * y.sigmoid()).sum() * 1.0;
}

const ahead::Graph* find(const std::vector<ahead::Program>& programs, const std::string& name) {
  for (const ahead::Program& program : programs) {
    if (program.name == name) return program.graph.get();
  }
  return nullptr;
}

void print(const ahead::CompileStats& stats) {
  std::printf("%llu calls: %llu observed, %llu from graphs, %llu eager; ",
              static_cast<unsigned long long>(stats.calls),
              static_cast<unsigned long long>(stats.observed_calls),
              static_cast<unsigned long long>(stats.cache_hits),
              static_cast<unsigned long long>(stats.eager_calls));
  std::printf("%llu programs, traced in %.2f ms\n",
              static_cast<unsigned long long>(stats.compilations), 1e3 * stats.trace_seconds);
}

}  // namespace

int main() {
  models::Checks check;
  torch::manual_seed(0);
  auto compiled = ahead::compile(f, {.fullgraph = true});
  Tensor x = torch::randn({4, 3}), w = torch::randn({3, 2}).requires_grad_();
  // The first two calls run the function itself. What both did is compiled when the second ends.
  for (int call = 0; call < 2; ++call) {
    std::printf("%s\n", compiled.explain(x, w).c_str());
    check(compiled(x, w).equal(f(x, w)), "observed: the result is eager's");
  }
  std::printf("%s\n", compiled.explain(x, w).c_str());
  Tensor y = compiled(x, w);
  check(models::same(y, f(x, w)), "from a graph: the result is eager's");
  print(compiled.stats());
  check(compiled.stats().observed_calls == 2 && compiled.stats().cache_hits == 1,
        "which the counts tell");
  Tensor gradient = torch::autograd::grad({y}, {w})[0];
  check(models::same(gradient, torch::autograd::grad({f(x, w)}, {w})[0]),
        "the gradient is eager's");

  // The graph that was traced from what was observed, its two halves, and what each pass that
  // changed something left.
  const std::vector<ahead::Program> programs = compiled.programs();
  std::printf("\n%-40s  %5s  %8s\n", "program", "nodes", "ms");
  for (const ahead::Program& program : programs) {
    std::printf("%-40s  %5zu  %8.3f\n", program.name.c_str(), program.graph->num_nodes(),
                1e3 * program.seconds);
  }
  const ahead::Graph* traced = find(programs, "trace");
  const ahead::Graph* backward = find(programs, "partition.backward");
  check(traced != nullptr && backward != nullptr, "there are the joint graph and its halves");
  std::printf("\nThe function and its gradient, as traced:\n%s\n", traced->str().c_str());
  std::printf("The last program:\n%s\n", programs.back().str().c_str());

  // Programs are text that can be read back and run: here the joint graph, by the interpreter.
  ahead::Graph parsed = ahead::Graph::parse(traced->str());
  check(parsed.hash() == traced->hash(), "the text reads back as the same program");
  std::vector<Tensor> results = ahead::interpret(parsed, {x, w, torch::ones({})});
  check(models::same(results, {y, gradient}), "and it gives the same numbers");

  // Another size does not fit. explain() says why; one call is observed, which did the same with
  // other numbers: then a program for many sizes serves. Lesson 14 has more of that.
  Tensor longer = torch::randn({5, 3});
  std::printf("\n%s\n", compiled.explain(longer, w).c_str());
  for (int call = 0; call < 3; ++call) {
    check(models::same(compiled(longer, w), f(longer, w)), "another size: the result is eager's");
  }
  std::printf("%s\n", compiled.explain(longer, w).c_str());
  check(compiled.stats().compilations == 2 && compiled.stats().cache_hits == 3,
        "it was compiled for many sizes, which the counts tell");
  print(compiled.stats());
  return check.exit_code();
}
