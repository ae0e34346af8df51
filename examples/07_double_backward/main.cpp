// Derivatives of derivatives, taken outside the compiled function or inside it: a gradient penalty,
// a network that solves a differential equation, and forces as derivatives of an energy.

#include <ahead/ahead.h>

#include "models/checks.h"
#include "models/models.h"
#include "models/same.h"

namespace {

using at::Tensor;
using models::same;
using torch::autograd::grad;
using Tensors = std::vector<Tensor>;

/// The derivative of a sum, with a history of its own.
Tensor derivative(const Tensor& y, const Tensor& x) {
  return grad({y.sum()}, {x}, {}, /*retain_graph=*/true, /*create_graph=*/true)[0];
}

/// A critic should have slope one everywhere.
template <class Critic>
Tensor penalty(Critic& critic, const Tensor& x) {
  return (derivative(critic(x), x).norm(2, 1) - 1).square().mean();
}

/// u'' = -sin, as models::Pinn has it: two derivatives in the loss, a third in its gradient.
template <class Network>
Tensor residual(Network& u, const Tensor& x) {
  return (derivative(derivative(u(x), x), x) + x.sin()).square().mean();
}

/// Atoms that attract each other, as far as two parameters say so.
Tensor energy(const Tensor& atoms, const Tensor& depth, const Tensor& width) {
  Tensor distances = (atoms.unsqueeze(0) - atoms.unsqueeze(1)).square().sum(2);
  return -(depth * torch::exp(-distances / width)).sum();
}

template <class Energy>
Tensor force_error(Energy& e, const Tensor& atoms, const Tensor& depth, const Tensor& width) {
  const Tensor forces = -derivative(e(atoms, depth, width), atoms);
  return forces.square().mean();
}

/// An activation that brings its own gradient, which autograd differentiates in turn.
struct SquaredRelu : torch::autograd::Function<SquaredRelu> {
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& x) {
    context->save_for_backward({x});
    return x.relu().square();
  }
  static Tensors backward(torch::autograd::AutogradContext* context, const Tensors& gradients) {
    return {gradients[0] * 2 * context->get_saved_variables()[0].relu()};
  }
};

/// The gradients of a loss; undefined where it does not depend on a tensor.
Tensors gradients(const Tensor& loss, const Tensors& tensors) {
  return grad({loss}, tensors, {}, /*retain_graph=*/{}, /*create_graph=*/{}, /*allow_unused=*/true);
}

}  // namespace

int main() {
  models::Checks check;
  torch::manual_seed(0);
  // The first call of each compiled function runs the function itself, and is compiled before it
  // returns; what is compared below runs from graphs.
  const ahead::Options strict{.fullgraph = true, .confirm = ahead::Confirm::Never};
  models::Pinn net;
  const Tensors parameters = net->parameters();
  auto eager = [&](const Tensor& x) { return net->forward(x); };
  auto compiled = ahead::compile(net, strict);

  // Only the network is compiled. Its backward is differentiated again, to any order.
  Tensor x = torch::linspace(-3, 3, 64).unsqueeze(1).requires_grad_();
  compiled(x);
  check(same(derivative(compiled(x), x), derivative(eager(x), x)), "slopes are eager's");
  check(same(gradients(penalty(compiled, x), parameters), gradients(penalty(eager, x), parameters)),
        "gradient penalty: gradients are eager's");
  const Tensors expected = gradients(residual(eager, x), parameters);
  check(same(gradients(residual(compiled, x), parameters), expected),
        "differential equation: third derivatives are eager's");
  check(compiled.stats().cache_hits == 3, "all of these ran from a graph");

  // The whole loss is compiled, derivatives and all.
  auto whole = ahead::compile([&](const Tensor& in) { return residual(eager, in); }, strict);
  whole(x);
  check(same(gradients(whole(x), parameters), expected) && whole.stats().cache_hits == 1,
        "compiled as a whole: third derivatives are eager's");

  // Molecular dynamics: forces from an energy, fitted through their own derivative.
  Tensor atoms = torch::randn({12, 3}).requires_grad_();
  Tensor depth = torch::tensor(1.5).requires_grad_(), width = torch::tensor(2.0).requires_grad_();
  auto compiled_energy = ahead::compile(energy, strict);
  compiled_energy(atoms, depth, width);
  Tensor forces = derivative(compiled_energy(atoms, depth, width), atoms);
  check(same(forces, derivative(energy(atoms, depth, width), atoms)), "forces are eager's");
  const Tensors fitted{depth, width};
  check(same(gradients(force_error(compiled_energy, atoms, depth, width), fitted),
             gradients(force_error(energy, atoms, depth, width), fitted)),
        "so is how they depend on the parameters");
  check(compiled_energy.stats().cache_hits == 2, "both energies ran from a graph");

  // Custom autograd functions are differentiated as in eager.
  auto custom = [&](const Tensor& in) { return SquaredRelu::apply(net->forward(in)).tanh(); };
  auto compiled_custom = ahead::compile(custom, strict);
  compiled_custom(x);
  check(same(derivative(derivative(compiled_custom(x), x), x),
             derivative(derivative(custom(x), x), x)) &&
            compiled_custom.stats().cache_hits == 1,
        "custom autograd function: second derivatives are eager's");
  return check.exit_code();
}
