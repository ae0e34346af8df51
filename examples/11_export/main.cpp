// A model as a file: its graph, with or without the gradient, is exported, written down, read
// again, and trained and served by programs that know nothing of the model's class.

#include <ahead/ahead.h>

#include <unistd.h>

#include <cstdio>
#include <string>

#include "models/checks.h"
#include "models/same.h"

namespace {

using at::Tensor;
using models::same;
using Tensors = std::vector<Tensor>;

/// A small classifier with batch normalisation, which writes to its buffers.
struct ClassifierImpl : torch::nn::Module {
  ClassifierImpl() {
    hidden = register_module("hidden", torch::nn::Linear(8, 32));
    norm = register_module("norm", torch::nn::BatchNorm1d(32));
    scores = register_module("scores", torch::nn::Linear(32, 4));
  }
  Tensor forward(const Tensor& x) { return scores(torch::relu(norm(hidden(x)))); }
  torch::nn::Linear hidden{nullptr}, scores{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
};
TORCH_MODULE(Classifier);

/// What is trained: the model with its loss.
struct TrainingImpl : torch::nn::Module {
  explicit TrainingImpl(Classifier classifier)
      : model(register_module("model", std::move(classifier))) {}
  Tensor forward(const Tensor& x, const Tensor& target) {
    return torch::nn::functional::cross_entropy(model(x), target);
  }
  Classifier model;
};
TORCH_MODULE(Training);

/// The same batches for everybody.
Tensors batch(int step) {
  torch::manual_seed(100 + static_cast<uint64_t>(step));
  const Tensor x = torch::randn({16, 8});
  return {x, x.slice(1, 0, 4).argmax(1)};
}

Tensor train_eagerly(Training& training, int steps) {
  Tensor loss;
  for (int step = 0; step < steps; ++step) {
    training->zero_grad();
    loss = training->forward(batch(step)[0], batch(step)[1]);
    loss.backward();
    const torch::NoGradGuard no_grad;
    for (Tensor& parameter : training->parameters()) parameter.sub_(parameter.grad(), 0.1);
  }
  return loss.detach();
}

/// Knows no model: only a program, the names of its gradients, and a rate.
Tensor train(const ahead::aot::ExportedModule& program, int steps) {
  const ahead::aot::ExportedFunction run = program.prepare();
  Tensor loss;
  for (int step = 0; step < steps; ++step) {
    const auto results = run.run(batch(step));
    loss = results.outputs[0];
    const torch::NoGradGuard no_grad;
    for (const auto& [name, gradient] : results.gradients) program.tensor(name).sub_(gradient, 0.1);
  }
  return loss;
}

Training make_training() {
  torch::manual_seed(1);
  return Training(Classifier());
}

}  // namespace

int main(int argc, char** argv) {
  models::Checks check;
  const bool is_quick = argc > 1 && std::string(argv[1]) == "--quick";
  const int steps = is_quick ? 20 : 200;
  const std::string folder = "/tmp/ahead_11_export_" + std::to_string(::getpid());

  // The joint graph: what the module computes, and the gradient of its loss by every parameter.
  Training training = make_training();
  ahead::aot::export_module(training, batch(0),
                            {.trace_joint = true,
                             .output_loss_index = 0,
                             .input_names = {"x", "target"},
                             .output_names = {"loss"}})
      .save(folder + "/training");
  const auto program = ahead::aot::ExportedModule::load(folder + "/training");
  std::printf("%s\n", program.signature.str().c_str());

  // Training it is training the module.
  const Tensor expected = train_eagerly(training, steps);
  const Tensor loss = train(program, steps);
  std::printf("loss after %d steps: %.4f\n\n", steps, loss.item<float>());
  // Roundings in the last places grow as training goes on.
  constexpr double tolerance = 1e-3;
  check(same(expected, loss, tolerance), "an exported program trains as the module does");
  Tensors state = training->parameters();
  for (const Tensor& buffer : training->buffers()) state.push_back(buffer);
  check(same(state, program.tensors, tolerance),
        "parameters and running averages are the same afterwards");

  // The graph for serving: without gradient, dropout and batch statistics.
  training->model->eval();
  const torch::NoGradGuard no_grad;
  ahead::aot::export_module(training->model, {batch(0)[0]}).save(folder + "/serving");
  const auto serve = ahead::aot::ExportedModule::load(folder + "/serving").prepare();
  const Tensor x = batch(steps)[0];
  check(same(training->model->forward(x), serve({x})[0]), "an exported model serves as it does");

  // Nothing of this needs more than a parser, a file of tensors and an interpreter.
  Tensors arguments;
  torch::load(arguments, folder + "/serving/tensors.pt");
  arguments.push_back(x);
  const auto graph = ahead::aot::ExportedModule::load(folder + "/serving").graph.str();
  check(
      same(training->model->forward(x), ahead::interpret(ahead::Graph::parse(graph), arguments)[0]),
      "its text and its tensors are the whole program");

  // What cannot be exported is told.
  std::string said;
  try {
    ahead::aot::export_module(training->model, {x}, {.trace_joint = true, .output_loss_index = 0});
  } catch (const ahead::UserError& error) {
    said = error.msg();
  }
  std::printf("%s\n", said.c_str());
  check(said.find("to be a scalar tensor") != std::string::npos, "scores are no loss");
  return check.exit_code();
}
