#include "ops/families.h"

// One step of an optimiser: parameter, gradient and state come in, what they are afterwards comes
// back.
namespace ahead::samples::optimiser_samples {
namespace {

using at::Tensor;

/// A parameter, its gradient, an average of it, an average of its square and the number of steps.
std::vector<Inputs> states() {
  std::vector<Inputs> sets;
  const auto add = [&](const Input& x, int steps) {
    const Input state = x.no_grad();
    sets.push_back({state, state, state, state.positive(), f32().filled(steps).no_grad()});
  };
  add(f32(2, 3), 3);
  add(f32(40), 9);
  add(f32(3, 4).transposed(), 2);
  add(f32(), 1);
  add(f64(4), 1);
  add(bf16(5), 4);
  return sets;
}

/// The same with a learning rate in a tensor.
std::vector<Inputs> states_and_rates() {
  std::vector<Inputs> sets = states();
  for (Inputs& inputs : sets) inputs.push_back(f32().filled(0.1).no_grad());
  return sets;
}

/// Runs a step on copies, since it writes to nearly everything it is given, and returns them.
template <class F>
Fn on_copies(F step) {
  return [step](const Tensors& in) {
    Tensors copies;
    for (const Tensor& x : in) copies.push_back(x.clone());
    step(copies);
    return copies;
  };
}

/// Runs a step on the arguments themselves.
template <class F>
Fn in_place(F step) {
  return [step](const Tensors& in) {
    step(in);
    return Tensors{};
  };
}

template <class F>
void add_steps(SampleTable& table, const char* op, const std::vector<Inputs>& sets, F step,
               const std::string& label = "") {
  table.op(op)
      .over(sets, on_copies(step), label)
      .over(sets, in_place(step), label.empty() ? "in place" : label + ", in place");
}

void add_sgd(SampleTable& table) {
  add_steps(
      table, "aten._fused_sgd_", states(),
      [](const Tensors& s) {
        at::_fused_sgd_({s[0]}, {s[1]}, {s[2]}, 0.01, 0.9, 0.1, 0, true, false, false);
      },
      "momentum");
  add_steps(
      table, "aten._fused_sgd_", states(),
      [](const Tensors& s) {
        at::_fused_sgd_({s[0]}, {s[1]}, {}, 0.01, 0, 0.1, 0, false, true, true);
      },
      "plain");
  add_steps(
      table, "aten._fused_sgd_", states_and_rates(),
      [](const Tensors& s) {
        at::_fused_sgd_({s[0]}, {s[1]}, {s[2]}, 0.01, 0.9, s[5], 0, false, false, false);
      },
      "rate in a tensor");
}

void add_adagrad(SampleTable& table) {
  add_steps(table, "aten._fused_adagrad_", states(), [](const Tensors& s) {
    at::_fused_adagrad_({s[0]}, {s[1]}, {s[3]}, {s[4]}, 0.1, 0.01, 0.01, 1e-8, false);
  });
  add_steps(
      table, "aten._fused_adagrad_", states_and_rates(),
      [](const Tensors& s) {
        at::_fused_adagrad_({s[0]}, {s[1]}, {s[3]}, {s[4]}, s[5], 0.01, 0.01, 1e-8, false);
      },
      "rate in a tensor");
}

/// Adam and AdamW have one signature.
template <class Step, class StepWithRate>
void add_adam(SampleTable& table, const char* op, Step step, StepWithRate step_with_rate) {
  add_steps(table, op, states(), [step](const Tensors& s) {
    step({s[0]}, {s[1]}, {s[2]}, {s[3]}, {}, {s[4]}, 0.1, /*amsgrad=*/false);
  });
  add_steps(
      table, op, states(),
      [step](const Tensors& s) {
        const Tensor largest = s[3] * 2;
        step({s[0]}, {s[1]}, {s[2]}, {s[3]}, {largest}, {s[4]}, 0.1, /*amsgrad=*/true);
      },
      "amsgrad");
  add_steps(
      table, op, states(),
      [step](const Tensors& s) {
        const Tensor other = s[0] * 0.5, gradient = s[1] * 2;
        step({s[0], other}, {s[1], gradient}, {s[2], s[2] * 1}, {s[3], s[3] * 1}, {},
             {s[4], s[4] * 1}, 0.1, /*amsgrad=*/false);
        s[0].add_(other);
      },
      "two parameters");
  add_steps(
      table, op, states_and_rates(),
      [step_with_rate](const Tensors& s) {
        step_with_rate({s[0]}, {s[1]}, {s[2]}, {s[3]}, {}, {s[4]}, s[5], /*amsgrad=*/false);
      },
      "rate in a tensor");
}

using List = at::TensorList;

void add_adams(SampleTable& table) {
  add_adam(
      table, "aten._fused_adam_",
      [](List p, List g, List m, List v, List max, List steps, double rate, bool amsgrad) {
        at::_fused_adam_(p, g, m, v, max, steps, rate, 0.9, 0.99, 0.01, 1e-8, amsgrad, false);
      },
      [](List p, List g, List m, List v, List max, List steps, const Tensor& rate, bool amsgrad) {
        at::_fused_adam_(p, g, m, v, max, steps, rate, 0.9, 0.99, 0.01, 1e-8, amsgrad, false);
      });
  add_adam(
      table, "aten._fused_adamw_",
      [](List p, List g, List m, List v, List max, List steps, double rate, bool amsgrad) {
        at::_fused_adamw_(p, g, m, v, max, steps, rate, 0.9, 0.99, 0.01, 1e-8, amsgrad, false);
      },
      [](List p, List g, List m, List v, List max, List steps, const Tensor& rate, bool amsgrad) {
        at::_fused_adamw_(p, g, m, v, max, steps, rate, 0.9, 0.99, 0.01, 1e-8, amsgrad, false);
      });
}

void add_gradient_scaling(SampleTable& table) {
  const std::vector<Inputs> gradients = {{f32(3, 4).no_grad(), f32(4, 3).transposed().no_grad()},
                                         {f64(3).no_grad(), f64().no_grad()},
                                         {f32(3, 4).specials().no_grad(), f32(2).no_grad()}};
  table.op("aten._amp_foreach_non_finite_check_and_unscale_").over(gradients, [](auto& x, auto& y) {
    Tensors grads = {x.clone(), y.clone()};
    Tensor found = at::zeros({1}), scale = at::full({1}, 0.5);
    at::_amp_foreach_non_finite_check_and_unscale_(grads, found, scale);
    return Tensors{grads[0], grads[1], found};
  });
}

}  // namespace

void add(SampleTable& table) {
  add_sgd(table);
  add_adagrad(table);
  add_adams(table);
  add_gradient_scaling(table);
}

}  // namespace ahead::samples::optimiser_samples
