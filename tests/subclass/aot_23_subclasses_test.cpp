#include "subclass/wrapped_check.h"

/// Ports of upstream's tests of subclasses; each has upstream's name.
namespace ahead::wrapped::aot_23_subclasses_test {

/// The program of a stage.
template <class F>
Graph program(const Compiled<F>& compiled, const std::string& stage) {
  for (const Program& made : compiled.programs()) {
    if (made.name == stage) return *made.graph;
  }
  ADD_FAILURE() << "there is no program " << stage;
  return {};
}

/// TwoTensor(TwoTensor, TwoTensor).
at::Tensor nested(at::IntArrayRef sizes) {
  return TwoTensor::make(two(sizes), two(sizes)).requires_grad_();
}

const Options once{.backend = "interpreter", .fullgraph = true, .confirm = Confirm::Never};

TEST(AotSubclasses, test_aot_dispatch_simple) {
  const auto f = [](const Tensors& x) -> Tensors { return {x[0] * x[1] + x[0].sin()}; };
  check(f, [] { return Tensors{two({3, 3}, true), leaf({3, 3})}; });
  auto compiled = compile(aot::FlatFunction(f), once);
  const Tensors in{two({3, 3}, true), leaf({3, 3})};
  for (int i = 0; i < 2; ++i) compiled(in)[0].sum().backward();
  EXPECT_EQ(classes_of(in[1].grad()), "TwoTensor(Tensor,Tensor,)");
  size_t num_outputs = 0, num_gradients = 0, multiplications = 0;
  const Graph forward = program(compiled, "partition.forward");
  for (const Graph::Output& output : forward.outputs())
    num_outputs += output.slot.kind == Slot::Kind::Output;
  for (const Node& node : forward.nodes()) multiplications += node.op().name() == "aten.mul.Tensor";
  const Graph backward = program(compiled, "partition.backward");
  for (const Graph::Output& output : backward.outputs())
    num_gradients += output.slot.kind == Slot::Kind::GradOf && output.value != nullptr;
  EXPECT_EQ(num_outputs, 2U);
  EXPECT_EQ(multiplications, 2U);
  EXPECT_EQ(num_gradients, 4U);
}

TEST(AotSubclasses, test_aot_dispatch_incorrect_backward) {
  auto compiled = compile([](const at::Tensor& x) { return x * 2; }, once);
  compiled(leaf({3}));
  const at::Tensor y = compiled(leaf({3}));
  EXPECT_EQ(compiled.stats().cache_hits, 1U);
  EXPECT_NE(error_of([&] {
              (y * two({3})).sum().backward();
            }).find("we guessed its metadata incorrectly"),
            std::string::npos);
}

TEST(AotSubclasses, test_aot_dispatch_output_alias) {
  check(
      [](const Tensors& x) -> Tensors {
        return {x[0].view({-1}), x[0] * x[1]};
      },
      [] {
        return Tensors{two({3, 3}, true), leaf({3, 3})};
      });
}

TEST(AotSubclasses, test_aot_dispatch_input_mutation) {
  check(
      [](const Tensors& x) -> Tensors {
        x[0].mul_(2);
        x[1].mul_(3);
        return {x[0] * x[1] * x[2]};
      },
      [] {
        return Tensors{at::randn({3, 3}), two({3, 3}), two({3, 3}, true)};
      });
}

TEST(AotSubclasses, test_aot_dispatch_input_mutation_and_output_alias) {
  const auto f = [](const Tensors& x) -> Tensors {
    x[0].mul_(2);
    return {x[0].view({-1}), x[0] * x[1]};
  };
  const auto make = [] { return Tensors{two({3, 3}), leaf({3, 3})}; };
  check(f, make);
  // The graph returns both tensors of what is written, and of the result that is no view of it.
  auto compiled = compile(aot::FlatFunction(f), once);
  compiled(make());
  size_t written = 0, results = 0;
  const Graph forward = program(compiled, "partition.forward");
  for (const Graph::Output& output : forward.outputs()) {
    written += output.slot.kind == Slot::Kind::MutatedInput;
    results += output.slot.kind == Slot::Kind::Output;
  }
  EXPECT_EQ(written, 2U);
  EXPECT_EQ(results, 2U);
}

TEST(AotSubclasses, test_nested_subclasses_complicated_inps) {
  check(
      [](const Tensors& x) -> Tensors {
        return {x[0] * x[2] + x[1].sin(), x[1] * 2};
      },
      [] {
        return Tensors{nested({2, 3}), nested({2, 3}), leaf({2, 3})};
      });
}

TEST(AotSubclasses, test_nested_subclasses_complicated_inps_mixed) {
  check(
      [](const Tensors& x) -> Tensors {
        return {x[0] * 2, x[1].sin(), x[0] + x[2]};
      },
      [] {
        return Tensors{nested({2, 3}), Tagged::make(two({2, 3}), 4).requires_grad_(), leaf({2, 3})};
      });
}

TEST(AotSubclasses, test_nested_subclasses_non_homogenous) {
  check([](const Tensors& x) -> Tensors { return {x[0] * x[0].cos()}; },
        [] {
          return Tensors{
              TwoTensor::make(Tagged::make(at::randn({3}), 1), Tagged::make(at::randn({3}), 2))
                  .requires_grad_()};
        });
}

TEST(AotSubclasses, test_custom_tensor_metadata) {
  check([](const Tensors& x) -> Tensors { return {x[0].sin().sum(0)}; },
        [] {
          return Tensors{Tagged::make(Tagged::make(at::randn({3, 2}), 7), 8).requires_grad_()};
        });
}

TEST(AotSubclasses, test_nested_subclasses_non_nested_grad) {
  auto compiled = compile([](const at::Tensor& x) { return x * 2; }, once);
  for (int i = 0; i < 2; ++i) {
    const at::Tensor y = compiled(two({3}, true));
    if (i == 0) continue;
    EXPECT_NE(
        error_of([&] { y.backward(nested({3}).detach()); })
            .find("During the backward, we encountered a tensor subclass where we guessed its "
                  "metadata incorrectly."),
        std::string::npos);
  }
  EXPECT_EQ(compiled.stats().cache_hits, 1U);
}

TEST(AotSubclasses, test_subclass_metadata_mutation) {
  auto compiled = compile(
      [](const at::Tensor& x) {
        x.transpose_(0, 1);
        return x.sin();
      },
      once);
  EXPECT_NE(error_of([&] {
              compiled(two({3, 2}));
            }).find("Metadata mutations are currently not allowed on tensor subclasses"),
            std::string::npos);
}

TEST(AotSubclasses, test_saved_subclass_tensors_unwrapped) {
  check([](const Tensors& x) -> Tensors { return {x[0].exp() * x[0].sigmoid()}; },
        [] {
          return Tensors{two({3, 3}, true)};
        });
}

TEST(AotSubclasses, test_mixed_subclass_and_plain_saved_tensors) {
  check(
      [](const Tensors& x) -> Tensors {
        return {x[0].exp() * x[1].sigmoid(), x[1].tanh()};
      },
      [] {
        return Tensors{two({3, 3}, true), leaf({3, 3})};
      });
}

TEST(AotSubclasses, test_simple_backward_wraps_grad_inputs) {
  check([](const Tensors& x) -> Tensors { return {(x[0] * 3).sum()}; },
        [] {
          return Tensors{two({3, 3}, true)};
        });
}

TEST(AotSubclasses, test_multi_input_backward_wraps_grad_inputs) {
  check([](const Tensors& x) -> Tensors { return {(x[0] * x[1]).sum()}; },
        [] {
          return Tensors{two({3, 3}, true), two({3, 3}, true)};
        });
}

TEST(AotSubclasses, test_nested_subclass_backward_wraps_grad_inputs) {
  check([](const Tensors& x) -> Tensors { return {(x[0] * x[0]).sum()}; },
        [] {
          return Tensors{nested({3, 3})};
        });
}

TEST(AotSubclasses, test_backward_prologue_correctness_with_subclass) {
  check([](const Tensors& x) -> Tensors { return {x[0] * 2}; },
        [] {
          return Tensors{two({3, 3}, true)};
        });
}

TEST(AotSubclasses, test_backward_epilogue_compiled_autograd_subclass) {
  const auto f = [](const at::Tensor& x, const at::Tensor& y) { return x.matmul(y).sin(); };
  auto compiled = compile(f, once);
  compiled_autograd::reset();
  for (int call = 0; call < 4; ++call) {
    torch::manual_seed(call);
    const at::Tensor x = two({3, 3}, true), y = leaf({3, 3});
    const at::Tensor tangent = two({3, 3});
    const Tensors expected = torch::autograd::grad({f(x, y)}, {x, y}, {tangent});
    const at::Tensor z = compiled(x, y);
    const compiled_autograd::Enable on;
    const Tensors actual = torch::autograd::grad({z}, {x, y}, {tangent});
    for (size_t i = 0; i < 2; ++i) EXPECT_EQ(difference(expected[i], actual[i]), "") << call << i;
    EXPECT_EQ(classes_of(actual[1]), "TwoTensor(Tensor,Tensor,)");
  }
  EXPECT_EQ(compiled.stats().eager_calls, 0U);
  EXPECT_GE(compiled.stats().cache_hits, 3U);
  const compiled_autograd::Stats stats = compiled_autograd::stats();
  EXPECT_EQ(stats.eager_fallbacks, 0U);
  EXPECT_EQ(stats.cache_hits + stats.cache_misses, 4U) << "of four backwards all or a part";
}

TEST(AotSubclasses, test_backward_epilogue_correctness_with_subclass) {
  check([](const Tensors& x) -> Tensors { return {x[0].matmul(x[1])}; },
        [] {
          return Tensors{two({3, 3}, true), two({3, 3}, true)};
        });
}

TEST(AotSubclasses, test_wrong_guess_tangent_type) {
  auto compiled = compile([](const at::Tensor& x) { return x * 2; }, once);
  for (int i = 0; i < 2; ++i) {
    const at::Tensor y = compiled(two({3}, true));
    if (i == 0) continue;
    EXPECT_NE(error_of([&] {
                y.backward(at::ones({3}));
              }).find("Expected a TwoTensor tangent but got a plain Tensor."),
              std::string::npos);
  }
  EXPECT_EQ(compiled.stats().cache_hits, 1U);
}

/// A tensor to whose every result a new tensor is added.
class Filled final : public WrapperTensorOf<Filled> {
 public:
  static constexpr const char* class_name = "Filled";
  static at::Tensor make(at::Tensor inner) {
    const WrapperLook look = WrapperLook::of(inner);
    return wrap(std::make_shared<const Filled>(std::move(inner)), look);
  }
  explicit Filled(at::Tensor inner) : inner_(std::move(inner)) {}
  WrapperParts flatten() const override { return {{inner_}, {}}; }
  static std::shared_ptr<const Filled> unflatten(WrapperParts parts) {
    return std::make_shared<const Filled>(parts.inner.at(0));
  }
  bool dispatch(const c10::OperatorHandle& op, torch::jit::Stack& stack) const override {
    dispatch_to_each(op, stack);
    if (op.operator_name().name != "aten::mul") return true;
    const at::Tensor made = inside_of<Filled>(stack[0].toTensor())->inner_;
    stack = {make(made + at::full(made.sizes(), 0.5))};
    return true;
  }

 private:
  at::Tensor inner_;
};

TEST(AotSubclasses, test_aot_test_subclasses_with_tensor_factories) {
  check([](const Tensors& x) -> Tensors { return {x[0] * 2 * x[0]}; },
        [] {
          return Tensors{Filled::make(at::randn({3, 4})).requires_grad_()};
        });
}

/// The channels-last tangents among the inputs of the backward graph.
size_t channels_last_tangents(const at::Tensor& x) {
  auto compiled = compile([](const at::Tensor& in) { return in * in; }, once);
  for (int i = 0; i < 2; ++i) compiled(x).sum().backward();
  EXPECT_EQ(compiled.stats().cache_hits, 1U);
  size_t count = 0;
  const Graph backward = program(compiled, "partition.backward");
  for (const Graph::Input& input : backward.inputs()) {
    if (input.slot.kind != Slot::Kind::Tangent) continue;
    EXPECT_EQ(at::IntArrayRef(input.value->meta.strides), x.strides());
    ++count;
  }
  return count;
}

TEST(AotSubclasses, test_grads_no_force_contiguous_subclass) {
  const auto last = at::MemoryFormat::ChannelsLast;
  EXPECT_EQ(channels_last_tangents(two({2, 3, 4, 5}).contiguous(last).detach().requires_grad_()),
            2U);
}

TEST(AotSubclasses, test_grads_no_force_contiguous_nested_subclass) {
  const auto last = at::MemoryFormat::ChannelsLast;
  EXPECT_EQ(channels_last_tangents(
                nested({2, 3, 4, 5}).detach().contiguous(last).detach().requires_grad_()),
            4U);
}

/// Plain parameters beside wrapped ones, one of them nested, of which a part inside is used.
struct WrappedParameters : torch::nn::Module {
  WrappedParameters() {
    torch::manual_seed(5);
    plain = register_parameter("plain", at::randn({3, 4}));
    wrapped = register_parameter("wrapped", two({3, 4}));
    const at::Tensor inner = TwoTensor::make(two({3, 4}), two({3, 4}));
    deep = register_parameter("deep", TwoTensor::make(inner, inner.clone()));
  }
  at::Tensor forward(const at::Tensor& x) { return x + 2 * plain + wrapped; }
  /// Through the deepest parts of the nested one.
  at::Tensor torture(const at::Tensor& x) {
    const at::Tensor half = inside_of<TwoTensor>(deep)->b();
    const at::Tensor quarter = inside_of<TwoTensor>(half)->a();
    return (x + 2 * plain + wrapped) * quarter * inside_of<TwoTensor>(quarter)->b();
  }
  at::Tensor plain, wrapped, deep;
};

/// Calls a method of two equal modules, eagerly and compiled, and compares results and gradients.
void expect_same_module(at::Tensor (WrappedParameters::*method)(const at::Tensor&)) {
  const auto eager = std::make_shared<WrappedParameters>();
  const auto own = std::make_shared<WrappedParameters>();
  auto compiled =
      compile([own, method](const at::Tensor& x) { return (own.get()->*method)(x); }, once);
  for (int call = 0; call < 4; ++call) {
    const at::Tensor x = at::randn({3, 4});
    const at::Tensor expected = (eager.get()->*method)(x), actual = compiled(x);
    EXPECT_EQ(difference(expected, actual), "");
    const at::Tensor tangent = at::ones_like(expected.detach());
    expected.backward(tangent);
    actual.backward(tangent);
    for (size_t i = 0; i < own->parameters().size(); ++i)
      EXPECT_EQ(difference(eager->parameters()[i].grad(), own->parameters()[i].grad()), "") << i;
  }
  EXPECT_EQ(compiled.stats().eager_calls, 0U);
  EXPECT_GE(compiled.stats().cache_hits, 2U);
}

TEST(AotSubclasses, test_subclass_parameters) {
  expect_same_module(&WrappedParameters::forward);
}

TEST(AotSubclasses, test_subclass_parameters_torture_case) {
  expect_same_module(&WrappedParameters::torture);
}

TEST(AotSubclasses, test_subclass_dynamic_stride) {
  const auto f = [](const at::Tensor& x) { return x.sin() * 2; };
  auto compiled = compile(f, {.backend = "interpreter", .fullgraph = true});
  for (int round = 0; round < 3; ++round) {
    for (const int64_t n : {4, 9, 6, 7}) {
      // By columns, as the wrapper looks, and by rows with gaps.
      const at::Tensor a = at::randn({n + 1, n}).t(), b = at::randn({n, n + 3}).narrow(1, 1, n + 1);
      const at::Tensor x = TwoTensor::make(a, b).requires_grad_();
      const at::Tensor same = TwoTensor::make(a, b).requires_grad_();
      const at::Tensor expected = f(x), actual = compiled(same);
      EXPECT_EQ(difference(expected, actual), "") << n;
      EXPECT_EQ(actual.strides(), x.strides()) << n;
      EXPECT_EQ(inside_of<TwoTensor>(actual)->b().strides(),
                inside_of<TwoTensor>(expected)->b().strides());
      const at::Tensor tangent = at::ones_like(expected.detach());
      expected.backward(tangent);
      actual.backward(tangent);
      EXPECT_EQ(difference(x.grad(), same.grad()), "") << n;
    }
  }
  EXPECT_EQ(compiled.stats().eager_calls, 0U);
  EXPECT_EQ(compiled.stats().compilations, 1U);
  EXPECT_GE(compiled.stats().cache_hits, 4U);
}

/// One row that stands for as many equal ones as its metadata says.
class Rows final : public WrapperTensorOf<Rows> {
 public:
  static constexpr const char* class_name = "Rows";
  static at::Tensor make(at::Tensor row, int64_t count) {
    WrapperLook look = WrapperLook::of(at::empty({count, row.size(-1)}));
    return wrap(std::make_shared<const Rows>(std::move(row), count), look);
  }
  Rows(at::Tensor row, int64_t count) : row_(std::move(row)), count_(count) {}
  WrapperParts flatten() const override { return {{row_}, count_}; }
  static std::shared_ptr<const Rows> unflatten(WrapperParts parts) {
    return std::make_shared<const Rows>(parts.inner.at(0), parts.metadata.toInt());
  }
  bool dispatch(const c10::OperatorHandle& op, torch::jit::Stack& stack) const override {
    for (c10::IValue& value : stack) {
      const auto rows = value.isTensor() ? inside_of<Rows>(value.toTensor()) : nullptr;
      if (rows != nullptr) value = rows->row_.expand({rows->count_, rows->row_.size(-1)});
    }
    op.callBoxed(stack);
    return true;
  }

 private:
  at::Tensor row_;
  int64_t count_;
};

TEST(AotSubclasses, test_aot_runtime_trace_joint) {
  const auto f = [](const at::Tensor& rows, const at::Tensor& x) { return (rows * x).sin(); };
  auto compiled = compile(f, once);
  for (int round = 0; round < 2; ++round) {
    for (int call = 0; call < 3; ++call) {
      const at::Tensor row = at::randn({4}), x = leaf({3, 4});
      const at::Tensor same = x.detach().clone().requires_grad_();
      const at::Tensor expected = f(Rows::make(row, 3), x),
                       actual = compiled(Rows::make(row, 3), same);
      EXPECT_EQ(difference(expected, actual), "");
      expected.sum().backward();
      actual.sum().backward();
      EXPECT_EQ(difference(x.grad(), same.grad()), "");
    }
    EXPECT_EQ(compiled.stats().eager_calls, 0U);
    EXPECT_EQ(compiled.stats().cache_hits, round == 0 ? 2U : 4U);
    compiled.reset();
  }
}

}  // namespace ahead::wrapped::aot_23_subclasses_test
