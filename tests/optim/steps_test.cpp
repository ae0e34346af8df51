#include <gtest/gtest.h>
#include <torch/torch.h>

#include "ahead/optim.h"
#include "optim/comparison.h"

/// Eager steps of ahead::optim against those of torch::optim.
namespace ahead::test {
namespace steps_test {

Tensors make_parameters(at::ScalarType dtype = at::kFloat) {
  Tensors parameters;
  for (const auto& sizes : std::vector<std::vector<int64_t>>{{7, 5}, {5}, {}, {3, 0}, {2, 3, 33}})
    parameters.push_back(at::randn(sizes, dtype).set_requires_grad(true));
  return parameters;
}

/// Both optimizers with the same options on the same parameters, and twelve steps.
template <class Ours, class Theirs, class Options>
void compare(const Options& options, at::ScalarType dtype = at::kFloat) {
  torch::manual_seed(1);
  const Tensors ours = make_parameters(dtype), theirs = copies_of(ours);
  Ours fused(ours, options);
  Theirs plain(theirs, options);
  for (int step = 1; step <= 12; ++step) {
    give_gradients(ours, theirs);
    fused.step();
    plain.step();
    expect_near(ours, theirs, options.lr(), step);
  }
  EXPECT_EQ(fused.state().size(), plain.state().size());
}

using torch::optim::AdagradOptions;
using torch::optim::AdamOptions;
using torch::optim::AdamWOptions;
using torch::optim::RMSpropOptions;
using torch::optim::SGDOptions;

TEST(OptimSteps, Sgd) {
  for (const double decay : {0.0, 0.1}) {
    compare<optim::SGD, torch::optim::SGD>(SGDOptions(0.1).weight_decay(decay));
    const SGDOptions moving = SGDOptions(0.1).weight_decay(decay).momentum(0.9);
    compare<optim::SGD, torch::optim::SGD>(moving);
    compare<optim::SGD, torch::optim::SGD>(SGDOptions(moving).dampening(0.3));
    compare<optim::SGD, torch::optim::SGD>(SGDOptions(moving).nesterov(true));
  }
}

TEST(OptimSteps, Adam) {
  for (const bool amsgrad : {false, true}) {
    for (const double decay : {0.0, 0.1}) {
      compare<optim::Adam, torch::optim::Adam>(
          AdamOptions(0.01).weight_decay(decay).amsgrad(amsgrad));
      compare<optim::AdamW, torch::optim::AdamW>(
          AdamWOptions(0.01).weight_decay(decay).amsgrad(amsgrad).betas({0.8, 0.95}).eps(1e-6));
    }
  }
}

TEST(OptimSteps, Adagrad) {
  compare<optim::Adagrad, torch::optim::Adagrad>(AdagradOptions(0.05));
  compare<optim::Adagrad, torch::optim::Adagrad>(
      AdagradOptions(0.05).lr_decay(0.1).weight_decay(0.01).initial_accumulator_value(0.5));
}

TEST(OptimSteps, Rmsprop) {
  for (const bool centered : {false, true}) {
    for (const double momentum : {0.0, 0.5}) {
      for (const double decay : {0.0, 0.1}) {
        compare<optim::RMSprop, torch::optim::RMSprop>(
            RMSpropOptions(0.01).centered(centered).momentum(momentum).weight_decay(decay));
      }
    }
  }
}

TEST(OptimSteps, RmspropToTheBit) {
  torch::manual_seed(1);
  const Tensors ours = make_parameters(), theirs = copies_of(ours);
  optim::RMSprop fused(ours, RMSpropOptions(0.01).weight_decay(0.1).centered(true));
  torch::optim::RMSprop plain(theirs, RMSpropOptions(0.01).weight_decay(0.1).centered(true));
  for (int step = 0; step < 5; ++step) {
    give_gradients(ours, theirs);
    fused.step();
    plain.step();
    expect_equal(ours, theirs);
  }
}

TEST(OptimSteps, DoubleParameters) {
  compare<optim::SGD, torch::optim::SGD>(SGDOptions(0.1).momentum(0.9), at::kDouble);
  compare<optim::Adam, torch::optim::Adam>(AdamOptions(0.01), at::kDouble);
  compare<optim::AdamW, torch::optim::AdamW>(AdamWOptions(0.01), at::kDouble);
  compare<optim::Adagrad, torch::optim::Adagrad>(AdagradOptions(0.05), at::kDouble);
  compare<optim::RMSprop, torch::optim::RMSprop>(RMSpropOptions(0.01), at::kDouble);
}

/// LibTorch's own step rounds after each operation: a fused one comes at least as near to what
/// double precision gives.
template <class Ours, class Theirs, class Options>
void compare_with_double(const Options& options, at::ScalarType dtype) {
  torch::manual_seed(1);
  const Tensors ours = make_parameters(dtype), theirs = copies_of(ours);
  Tensors exact;
  for (const at::Tensor& parameter : ours)
    exact.push_back(parameter.detach().to(at::kDouble).set_requires_grad(true));
  Ours fused(ours, options);
  Theirs plain(theirs, options), in_double(exact, options);
  for (int step = 1; step <= 12; ++step) {
    give_gradients(ours, theirs);
    for (size_t i = 0; i < exact.size(); ++i)
      exact[i].mutable_grad() = ours[i].grad().to(at::kDouble);
    fused.step();
    plain.step();
    in_double.step();
  }
  for (size_t i = 0; i < exact.size(); ++i) {
    const at::Tensor end = exact[i].detach().to(dtype);
    EXPECT_LE(distance(ours[i], end, options.lr()),
              std::max(4.0 * 12, 1.5 * distance(theirs[i], end, options.lr())))
        << dtype << ", parameter " << i;
  }
}

TEST(OptimSteps, ParametersOfHalfPrecision) {
  for (const at::ScalarType dtype : {at::kBFloat16, at::kHalf}) {
    compare_with_double<optim::SGD, torch::optim::SGD>(SGDOptions(0.1).momentum(0.9), dtype);
    compare_with_double<optim::Adam, torch::optim::Adam>(AdamOptions(0.01).eps(1e-4), dtype);
    compare_with_double<optim::AdamW, torch::optim::AdamW>(AdamWOptions(0.01).eps(1e-4), dtype);
    compare_with_double<optim::Adagrad, torch::optim::Adagrad>(AdagradOptions(0.05).eps(1e-4),
                                                               dtype);
    for (const double momentum : {0.0, 0.5})
      compare_with_double<optim::RMSprop, torch::optim::RMSprop>(
          RMSpropOptions(0.01).eps(1e-4).momentum(momentum), dtype);
  }
}

/// Expects two optimizers that `make` makes to do the same, to the bit if LibTorch's own step is
/// taken, over steps in which `prepare(parameters, step)` makes the gradients from one seed.
template <class Ours, class Theirs, class Options, class Prepare>
void compare_on(const Tensors& parameters, const Options& options, bool is_exact,
                const Prepare& prepare) {
  const Tensors theirs = copies_of(parameters);
  for (size_t i = 0; i < theirs.size(); ++i) {
    ASSERT_EQ(theirs[i].sizes(), parameters[i].sizes());
  }
  Ours fused(parameters, options);
  Theirs plain(theirs, options);
  for (int step = 1; step <= 6; ++step) {
    for (const Tensors* each : {&parameters, &theirs}) {
      torch::manual_seed(step);
      prepare(*each, step);
    }
    fused.step();
    plain.step();
    if (is_exact) {
      expect_equal(parameters, theirs);
    } else {
      expect_near(parameters, theirs, options.lr(), step);
    }
  }
}

void random_gradients(const Tensors& parameters, int) {
  for (const at::Tensor& parameter : parameters)
    parameter.mutable_grad() = at::randn_like(parameter.detach());
}

TEST(OptimSteps, ParametersWithoutGradientsAreLeftAlone) {
  torch::manual_seed(1);
  // Counts of steps differ then.
  const auto prepare = [](const Tensors& parameters, int step) {
    random_gradients(parameters, step);
    if (step % 2 == 0) parameters[1].mutable_grad() = at::Tensor();
    if (step < 4) parameters[0].mutable_grad() = at::Tensor();
  };
  compare_on<optim::Adam, torch::optim::Adam>(make_parameters(), AdamOptions(0.01), false, prepare);
  compare_on<optim::SGD, torch::optim::SGD>(make_parameters(), SGDOptions(0.01).momentum(0.9),
                                            false, prepare);
  compare_on<optim::Adagrad, torch::optim::Adagrad>(
      make_parameters(), AdagradOptions(0.01).lr_decay(0.5), false, prepare);
}

TEST(OptimSteps, MixedTypesInOneGroup) {
  torch::manual_seed(1);
  Tensors parameters = make_parameters();
  parameters.push_back(at::randn({4}, at::kDouble).set_requires_grad(true));
  parameters.push_back(at::randn({4, 4}, at::kBFloat16).set_requires_grad(true));
  compare_on<optim::AdamW, torch::optim::AdamW>(parameters, AdamWOptions(0.01).eps(1e-4), false,
                                                random_gradients);
}

TEST(OptimSteps, ComplexParametersTakeLibTorchsStep) {
  torch::manual_seed(1);
  const Tensors parameters = {at::randn({4}, at::kComplexFloat).set_requires_grad(true),
                              at::randn({3}).set_requires_grad(true)};
  compare_on<optim::SGD, torch::optim::SGD>(parameters, SGDOptions(0.01).momentum(0.9), true,
                                            random_gradients);
}

TEST(OptimSteps, SparseGradients) {
  torch::manual_seed(1);
  const Tensors parameters = {at::randn({6, 3}).set_requires_grad(true)};
  const auto prepare = [](const Tensors& all, int) {
    const at::Tensor rows = at::randint(6, {1, 2}, at::kLong);
    all[0].mutable_grad() = at::sparse_coo_tensor(rows, at::randn({2, 3}), {6, 3});
  };
  compare_on<optim::SGD, torch::optim::SGD>(parameters, SGDOptions(0.1), true, prepare);
  compare_on<optim::Adagrad, torch::optim::Adagrad>(parameters, AdagradOptions(0.1), true, prepare);
  optim::Adam adam(parameters, 0.1);
  EXPECT_THROW(adam.step(), c10::Error);
}

TEST(OptimSteps, OtherLayouts) {
  torch::manual_seed(1);
  // Dense in another order, and with gaps.
  const at::Tensor turned = at::randn({4, 6}).t().set_requires_grad(true);
  const at::Tensor with_gaps = at::randn({4, 6}).slice(1, 0, 6, 2).detach().set_requires_grad(true);
  const at::Tensor plain = at::randn({6, 4}).set_requires_grad(true);
  const auto other_gradients = [](const Tensors& all, int) {
    for (const at::Tensor& parameter : all)
      parameter.mutable_grad() = at::randn({4, 6}).t().clone(at::MemoryFormat::Contiguous);
    all[0].mutable_grad() = at::randn({4, 6}).t();
  };
  {
    // Clones of what is dense lie as it does.
    compare_on<optim::Adam, torch::optim::Adam>(Tensors{plain, turned}, AdamOptions(0.01), false,
                                                other_gradients);
  }
  Tensors ours = {with_gaps};
  Tensors theirs = {at::empty({4, 6}).slice(1, 0, 6, 2).copy_(with_gaps.detach())};
  theirs[0].set_requires_grad(true);
  optim::Adam fused(ours, 0.01);
  torch::optim::Adam libtorchs(theirs, 0.01);
  for (int step = 0; step < 4; ++step) {
    give_gradients(ours, theirs);
    fused.step();
    libtorchs.step();
    expect_equal(ours, theirs);
  }
}

TEST(OptimSteps, ParametersThatAreThereTwice) {
  torch::manual_seed(1);
  const at::Tensor ours = at::randn({5}).set_requires_grad(true), theirs = copies_of({ours})[0];
  optim::Adam fused(Tensors{ours, ours}, 0.01);
  torch::optim::Adam plain(Tensors{theirs, theirs}, 0.01);
  for (int step = 0; step < 4; ++step) {
    give_gradients({ours}, {theirs});
    fused.step();
    plain.step();
    expect_equal({ours}, {theirs});
  }
}

TEST(OptimSteps, GradientsThatRequireGrad) {
  torch::manual_seed(1);
  const at::Tensor weight = at::randn({5}).set_requires_grad(true);
  const at::Tensor other = at::randn({5}).set_requires_grad(true);
  optim::Adam adam({weight}, 0.01);
  (weight.pow(3) * other).sum().backward({}, /*retain_graph=*/true, /*create_graph=*/true);
  ASSERT_TRUE(weight.grad().requires_grad());
  const at::Tensor penalty = (weight.grad() * weight.grad().detach()).sum();
  const auto version = weight.grad()._version();
  const auto before = weight._version();
  adam.step();
  EXPECT_FALSE(weight.grad_fn());
  EXPECT_EQ(weight.grad()._version(), version);
  EXPECT_GT(weight._version(), before);
}

TEST(OptimSteps, ClosuresRunWithGradients) {
  torch::manual_seed(1);
  const Tensors ours = {at::randn({5}).set_requires_grad(true)}, theirs = copies_of(ours);
  optim::AdamW fused(ours, 0.01);
  torch::optim::AdamW plain(theirs, 0.01);
  const auto closure = [](torch::optim::Optimizer& optimizer) {
    optimizer.zero_grad();
    const at::Tensor loss = optimizer.param_groups()[0].params()[0].square().sum();
    loss.backward();
    return loss;
  };
  for (int step = 1; step <= 4; ++step) {
    torch::NoGradGuard no_grad;
    const at::Tensor a = fused.step([&] { return closure(fused); });
    const at::Tensor b = plain.step([&] { return closure(plain); });
    EXPECT_TRUE(at::allclose(a, b));
    expect_near(ours, theirs, 0.01, step);
  }
  EXPECT_FALSE(optim::SGD(ours, 0.1).step().defined());
}

TEST(OptimSteps, GroupsWithOptionsOfTheirOwn) {
  torch::manual_seed(1);
  const Tensors ours = make_parameters(), theirs = copies_of(ours);
  const auto groups = [](const Tensors& all) {
    std::vector<torch::optim::OptimizerParamGroup> made;
    made.emplace_back(Tensors{all[0], all[1]},
                      std::make_unique<AdamWOptions>(AdamWOptions(0.02).weight_decay(0.3)));
    made.emplace_back(Tensors{all[2]});
    return made;
  };
  optim::AdamW fused(groups(ours), AdamWOptions(0.01));
  torch::optim::AdamW plain(groups(theirs), AdamWOptions(0.01));
  for (int step = 1; step <= 8; ++step) {
    if (step == 4) {
      fused.add_param_group(torch::optim::OptimizerParamGroup(Tensors{ours[4]}));
      plain.add_param_group(torch::optim::OptimizerParamGroup(Tensors{theirs[4]}));
    }
    give_gradients(ours, theirs);
    fused.step();
    plain.step();
    expect_near(ours, theirs, 0.02, step);
  }
  EXPECT_EQ(fused.param_groups().size(), 3u);
}

TEST(OptimSteps, Schedulers) {
  torch::manual_seed(1);
  const Tensors ours = make_parameters(), theirs = copies_of(ours);
  optim::Adam fused(ours, 0.1);
  torch::optim::Adam plain(theirs, 0.1);
  torch::optim::StepLR of_fused(fused, 2, 0.5), of_plain(plain, 2, 0.5);
  torch::optim::ReduceLROnPlateauScheduler plateau_of_fused(
      fused, torch::optim::ReduceLROnPlateauScheduler::min, 0.5f, 1),
      plateau_of_plain(plain, torch::optim::ReduceLROnPlateauScheduler::min, 0.5f, 1);
  for (int step = 1; step <= 8; ++step) {
    give_gradients(ours, theirs);
    fused.step();
    plain.step();
    of_fused.step();
    of_plain.step();
    plateau_of_fused.step(1.0f);
    plateau_of_plain.step(1.0f);
    EXPECT_EQ(fused.param_groups()[0].options().get_lr(),
              plain.param_groups()[0].options().get_lr());
    expect_near(ours, theirs, 0.1, step);
  }
}

/// Each continues from what the other one saved.
template <class Ours, class Theirs, class Options>
void exchange(const Options& options) {
  torch::manual_seed(1);
  const Tensors ours = make_parameters(), theirs = copies_of(ours);
  Ours fused(ours, options);
  Theirs plain(theirs, options);
  for (int step = 1; step <= 9; ++step) {
    if (step % 3 == 0) {
      std::istringstream of_fused(archive_of(fused)), of_plain(archive_of(plain));
      torch::load(plain, of_fused);
      torch::load(fused, of_plain);
    }
    give_gradients(ours, theirs);
    fused.step();
    plain.step();
    expect_near(ours, theirs, options.lr(), 2 * step);
  }
}

TEST(OptimSteps, EitherLoadsWhatTheOtherSaved) {
  exchange<optim::SGD, torch::optim::SGD>(SGDOptions(0.1).momentum(0.9));
  exchange<optim::Adam, torch::optim::Adam>(AdamOptions(0.01).amsgrad(true));
  exchange<optim::AdamW, torch::optim::AdamW>(AdamWOptions(0.01));
  exchange<optim::Adagrad, torch::optim::Adagrad>(AdagradOptions(0.01).lr_decay(0.1));
  exchange<optim::RMSprop, torch::optim::RMSprop>(RMSpropOptions(0.01).momentum(0.5));
}

TEST(OptimSteps, ZeroGrad) {
  const at::Tensor weight = at::ones({3}).set_requires_grad(true);
  optim::SGD sgd({weight}, 0.1);
  weight.sum().backward();
  sgd.zero_grad(/*set_to_none=*/false);
  EXPECT_TRUE(at::equal(weight.grad(), at::zeros({3})));
  sgd.step();
  EXPECT_TRUE(at::equal(weight, at::ones({3})));
  sgd.zero_grad();
  EXPECT_FALSE(weight.grad().defined());
  sgd.step();
}

TEST(OptimSteps, NothingIsHeldAfterAStep) {
  const at::Tensor weight = at::ones({3}).set_requires_grad(true);
  optim::Adam adam({weight}, 0.1);
  weight.sum().backward();
  const auto owners = weight.use_count(), owners_of_grad = weight.grad().use_count();
  adam.step();
  EXPECT_EQ(weight.use_count(), owners);
  EXPECT_EQ(weight.grad().use_count(), owners_of_grad);
}

TEST(OptimSteps, MovedOptimizersGoOn) {
  torch::manual_seed(1);
  const Tensors ours = make_parameters(), theirs = copies_of(ours);
  optim::Adam first(ours, 0.1);
  torch::optim::Adam plain(theirs, 0.1);
  give_gradients(ours, theirs);
  first.step();
  plain.step();
  optim::Adam second(std::move(first));
  give_gradients(ours, theirs);
  second.step();
  plain.step();
  expect_near(ours, theirs, 0.1, 2);
}

}  // namespace steps_test
}  // namespace ahead::test
