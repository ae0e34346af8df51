#include <gtest/gtest.h>
#include <torch/torch.h>

#include "ahead/ahead.h"
#include "ahead/two_tensor.h"
#include "export/modules.h"
#include "support/eager.h"

namespace ahead::exported_modules {
namespace errors_test {

using aot::ExportOptions;
using Tensors = std::vector<at::Tensor>;

/// A module with one parameter whose forward is given.
struct AnyImpl : torch::nn::Module {
  using Forward = std::function<Tensors(AnyImpl&, const at::Tensor&)>;
  explicit AnyImpl(Forward forward) : run(std::move(forward)) {
    weight = register_parameter("weight", torch::rand({3}));
    buffer = register_buffer("buffer", torch::ones({3}));
  }
  Tensors forward(const at::Tensor& x) { return run(*this, x); }
  Forward run;
  at::Tensor weight, buffer, free = torch::ones({3}), other;
};

/// What exporting it says.
std::string complaint(AnyImpl::Forward forward, const ExportOptions& options = {},
                      at::Tensor x = torch::rand({3})) {
  auto module = std::make_shared<AnyImpl>(std::move(forward));
  const TensorSnapshot weight(module->weight), buffer(module->buffer), argument(x);
  std::string said = error_of([&] { aot::export_module(module, {x}, options); });
  EXPECT_EQ(weight.change(module->weight) + buffer.change(module->buffer) + argument.change(x), "");
  return said;
}

void expect_says(const std::string& said, const std::string& text) {
  EXPECT_NE(said.find(text), std::string::npos) << said;
  EXPECT_EQ(said.rfind("[export] ", 0), 0u) << said;
}

ExportOptions joint(int64_t loss = 0) {
  return {.trace_joint = true, .output_loss_index = loss};
}

TEST(ExportErrors, LossesThatAreNone) {
  const auto sum = [](AnyImpl& m, const at::Tensor& x) { return Tensors{(x * m.weight).sum()}; };
  expect_says(complaint(sum, {.trace_joint = true}),
              "it is required that one of your forward outputs must be a scalar loss");
  expect_says(complaint(sum, joint(1)),
              "We require the output marked as the loss (at index 1) to exist, and the module "
              "returns 1 tensors");
  expect_says(
      complaint([](AnyImpl& m, const at::Tensor& x) { return Tensors{x * m.weight}; }, joint()),
      "We require the output marked as the loss (at index 0) to be a scalar tensor. Got "
      "f32[3]. Reduce it");
  expect_says(complaint([](AnyImpl&, const at::Tensor& x) { return Tensors{x.sum()}; }, joint()),
              "We require the output marked as the loss (at index 0) to require gradients");
  const auto two = [](AnyImpl& m, const at::Tensor& x) {
    return Tensors{(x * m.weight).sum(), x + m.weight};
  };
  expect_says(
      complaint(two, joint()),
      "Found an output of the forward that requires gradients, that was not the scalar loss");
  const torch::NoGradGuard no_grad;
  expect_says(complaint(sum, joint()), "to require gradients");
}

TEST(ExportErrors, ParametersWithoutGradient) {
  const auto other = [](AnyImpl& m, const at::Tensor& x) {
    return Tensors{(x + m.weight.detach()).sum()};
  };
  const at::Tensor x = leaf({3});
  expect_says(complaint(other, joint(), x),
              "\"weight\": Found a parameter that did not receive a gradient");
  auto frozen = std::make_shared<AnyImpl>(other);
  frozen->weight.requires_grad_(false);
  const auto exported = aot::export_module(frozen, {x}, joint());
  EXPECT_TRUE(exported.signature.gradients_to_parameters().empty());
  EXPECT_EQ(exported.signature.gradients_to_user_inputs().size(), 1u);
}

TEST(ExportErrors, WritesThatAGraphCannotTellOf) {
  const auto write_weight = [](AnyImpl& m, const at::Tensor& x) {
    {
      const torch::NoGradGuard no_grad;
      m.weight.mul_(2);
    }
    return Tensors{(x * m.weight).sum()};
  };
  expect_says(complaint(write_weight, joint()),
              "Found a graph input that requires gradients, and received a mutation");
  EXPECT_EQ(complaint(write_weight), "") << "its new contents are an output";
  expect_says(complaint([](AnyImpl& m, const at::Tensor& x) {
                m.free.mul_(2);
                return Tensors{x * m.free};
              }),
              "the module writes to a tensor that it has not registered. Register it with "
              "register_buffer()");
  expect_says(complaint(
                  [](AnyImpl& m, const at::Tensor& x) {
                    m.buffer.mul_(m.weight);
                    return Tensors{(x * m.weight).sum()};
                  },
                  joint()),
              "the new contents of a buffer or an argument require grad");
  expect_says(complaint([](AnyImpl&, const at::Tensor& x) {
                const_cast<at::Tensor&>(x).unsqueeze_(0);
                return Tensors{x + 1};
              }),
              "Found an input that received a metadata mutation");
  expect_says(complaint([](AnyImpl& m, const at::Tensor& x) {
                (x * m.weight).sum().backward();
                return Tensors{x + 1};
              }),
              "backward(): the function leaves gradients in .grad");
}

TEST(ExportErrors, TensorsThatRequireGradButAreNotRegistered) {
  auto module = std::make_shared<AnyImpl>(
      [](AnyImpl& m, const at::Tensor& x) { return Tensors{(x * m.weight * m.free).sum()}; });
  module->free.requires_grad_();
  const at::Tensor x = torch::rand({3});
  expect_says(error_of([&] { aot::export_module(module, {x}, joint()); }),
              "the loss depends on a tensor that requires grad and is no parameter of the module");
  expect_same({module->forward(x)[0].detach()}, aot::export_module(module, {x})({x}));
}

TEST(ExportErrors, ArgumentsAndNames) {
  auto module = std::make_shared<AnyImpl>(
      [](AnyImpl& m, const at::Tensor& x) { return Tensors{x * m.weight}; });
  const at::Tensor x = torch::rand({3});
  expect_says(error_of([&] { aot::export_module(module, {module->weight}); }),
              "argument 0: it is the module's own \"weight\"");
  expect_says(error_of([&] {
                aot::export_module(module, {x, x});
              }),
              "the module's forward does not take 2 tensors");
  expect_says(error_of([&] { aot::export_module(std::shared_ptr<AnyImpl>(), {x}); }),
              "the module is null");
  expect_says(error_of([&] {
                aot::export_module(module, {x}, {.input_names = {"a", "b"}});
              }),
              "ExportOptions::input_names: 2 names for 1 tensors");
  expect_says(error_of([&] {
                aot::export_module(module, {x}, {.output_names = {"a", "b"}});
              }),
              "ExportOptions::output_names: 2 names for 1 tensors");
  expect_says(error_of([&] { aot::export_module(module, {x}, {.input_names = {"weight"}}); }),
              "\"weight\": two inputs have this name");
  const aot::ExportedModule exported = aot::export_module(module, {x});
  expect_says(error_of([&] { exported({}); }), "the program takes 1 tensors, and 0 were passed");
  EXPECT_THROW(exported({torch::rand({4})}), UserError);
}

TEST(ExportErrors, HooksOfParametersAndArguments) {
  auto module = std::make_shared<AnyImpl>(
      [](AnyImpl& m, const at::Tensor& x) { return Tensors{(x * m.weight).sum()}; });
  const at::Tensor x = leaf({3});
  const auto halve = [](const at::Tensor& gradient) { return gradient / 2; };
  const auto hook = module->weight.register_hook(halve);
  expect_says(error_of([&] { aot::export_module(module, {x}, joint()); }),
              "\"weight\": it has a hook (register_hook)");
  EXPECT_NO_THROW(aot::export_module(module, {x}));
  module->weight.remove_hook(hook);
  x.register_hook(halve);
  expect_says(error_of([&] { aot::export_module(module, {x}, joint()); }),
              "argument 0: it has a hook (register_hook)");
}

TEST(ExportErrors, WrapperTensors) {
  const std::string words = "aot_export_module does not support tensor subclass inputs for now";
  const auto two = [] { return TwoTensor::make(torch::rand({3}), torch::rand({3})); };
  const AnyImpl::Forward product = [](AnyImpl& m, const at::Tensor& x) {
    return Tensors{(x * m.weight * m.free).sum()};
  };
  auto module = std::make_shared<AnyImpl>(product);
  expect_says(error_of([&] { aot::export_module(module, {two()}); }), words);
  expect_says(error_of([&] { aot::export_module(module, {two()}, joint()); }), words);
  expect_says(error_of([&] {
                aot::export_joint([](const Tensors& in) { return Tensors{in[0] * 2}; }, {two()});
              }),
              words);
  struct WrappedImpl : torch::nn::Module {
    explicit WrappedImpl(const at::Tensor& t) : weight(register_parameter("weight", t)) {}
    at::Tensor forward(const at::Tensor& x) { return x * weight; }
    at::Tensor weight;
  };
  expect_says(error_of([&] {
                aot::export_module(std::make_shared<WrappedImpl>(two()), {torch::rand({3})});
              }),
              words);
  module->free = two();
  EXPECT_NE(error_of([&] {
              aot::export_module(module, {torch::rand({3})});
            }).find("a wrapper tensor meets the traced function"),
            std::string::npos);
}

TEST(ExportErrors, WhatDependsOnValues) {
  const std::string said = complaint([](AnyImpl&, const at::Tensor& x) {
    return Tensors{x.sum().item<float>() > 0 ? x + 1 : x - 1};
  });
  EXPECT_NE(said.find("aten._local_scalar_dense"), std::string::npos) << said;
}

TEST(ExportErrors, TensorsKeptInMembers) {
  auto module = std::make_shared<AnyImpl>([](AnyImpl& m, const at::Tensor& x) {
    m.other = x * 2;
    return Tensors{m.other + 1};
  });
  EXPECT_NE(error_of([&] {
              aot::export_module(module, {torch::rand({3})});
            }).find("a traced tensor outlives the trace without being a result"),
            std::string::npos);
}

TEST(ExportErrors, UserErrorsAreThoseOfEager) {
  const auto product = [](AnyImpl& m, const at::Tensor& x) {
    return Tensors{x.matmul(m.weight.reshape({1, 3}))};
  };
  auto module = std::make_shared<AnyImpl>(product);
  EXPECT_EQ(complaint(product), error_of([&] { module->forward(torch::rand({3})); }));
  auto throwing = std::make_shared<AnyImpl>(
      [](AnyImpl&, const at::Tensor&) -> Tensors { throw std::logic_error("mine"); });
  EXPECT_THROW(aot::export_module(throwing, {torch::rand({3})}), std::logic_error);
}

TEST(ExportErrors, SignaturesThatDoNotFit) {
  auto module = std::make_shared<AnyImpl>(
      [](AnyImpl& m, const at::Tensor& x) { return Tensors{x * m.weight}; });
  const aot::ExportedModule exported = aot::export_module(module, {torch::rand({3})});
  aot::ExportedModule fewer = exported;
  fewer.signature.inputs.pop_back();
  expect_says(error_of([&] { fewer.prepare(); }), "inputs: the signature names 2 of them");
  aot::ExportedModule otherwise = exported;
  otherwise.signature.outputs[0].kind = GraphSignature::OutputKind::Gradient;
  expect_says(error_of([&] { otherwise.prepare(); }),
              "output 0, \"out0\": its slot in the graph is Output 0");
  aot::ExportedModule without = exported;
  without.tensors.clear();
  expect_says(error_of([&] { without.prepare(); }), "0 tensors: the graph takes 2");
}

// Assigned buffers.

struct AssigningImpl : torch::nn::Module {
  AssigningImpl() : state(register_buffer("state", torch::zeros({3}))) {}
  at::Tensor forward(const at::Tensor& x) {
    state = state * 0.5 + x;
    return state.sum() * x;
  }
  at::Tensor& state;  ///< the registered one itself
};

TEST(ExportBuffers, AssignedBuffersAreMutations) {
  auto eager = std::make_shared<AssigningImpl>(), module = std::make_shared<AssigningImpl>();
  const at::Tensor before = module->state;
  const aot::ExportedModule exported = aot::export_module(module, {torch::rand({3})});
  EXPECT_TRUE(module->state.is_same(before)) << "exporting leaves the module as it was";
  EXPECT_EQ(exported.signature.buffers_to_mutate(), (GraphSignature::Names{{0, "state"}}));
  ASSERT_EQ(exported.graph.outputs().size(), 2u);
  EXPECT_EQ(exported.graph.outputs()[0].slot.str(), "MutatedInput 0");
  const aot::ExportedFunction function = exported.prepare();
  for (int call = 0; call < 3; ++call) {
    const at::Tensor x = torch::rand({3});
    expect_same({eager->forward(x)}, function({x}));
    expect_same({eager->state}, {exported.tensor("state")});
  }
}

TEST(ExportBuffers, AssignmentsThatDoNotFit) {
  struct WiderImpl : AssigningImpl {
    at::Tensor forward(const at::Tensor& x) { return state = torch::cat({state, x}); }
  };
  auto module = std::make_shared<WiderImpl>();
  const at::Tensor before = module->state;
  expect_says(error_of([&] { aot::export_module(module, {torch::rand({3})}); }),
              "the module assigns a tensor of another shape, dtype or device to this buffer");
  EXPECT_TRUE(module->state.is_same(before));
  expect_says(error_of([&] { aot::export_module(std::make_shared<AssigningImpl>(), {leaf({3})}); }),
              "the module assigns a tensor that requires grad to this buffer");
}

}  // namespace errors_test
}  // namespace ahead::exported_modules
