#include <gtest/gtest.h>
#include <torch/library.h>
#include <torch/torch.h>

#include "ahead/ahead.h"
#include "support/hits.h"

/// Custom operators whose schemas say that what they return is new memory.
namespace ahead {
namespace custom_op_check_test {

using at::Tensor;

Tensor honest(const Tensor& x) {
  return x * 2;
}
/// Returns its argument as something new.
Tensor dishonest(const Tensor& x) {
  return at::alias(x);
}
std::tuple<Tensor, Tensor> twins(const Tensor& x) {
  const Tensor made = x * 2;
  return {made, made.view({-1})};
}
Tensor announced(const Tensor& x) {
  return at::alias(x);
}

TORCH_LIBRARY(ahead_alias_test, m) {
  m.def("honest(Tensor x) -> Tensor");
  m.def("dishonest(Tensor x) -> Tensor");
  m.def("twins(Tensor x) -> (Tensor, Tensor)");
  m.def("announced(Tensor(a) x) -> Tensor(a)");
}
TORCH_LIBRARY_IMPL(ahead_alias_test, CPU, m) {
  m.impl("honest", honest);
  m.impl("dishonest", dishonest);
  m.impl("twins", twins);
  m.impl("announced", announced);
}
TORCH_LIBRARY_IMPL(ahead_alias_test, Meta, m) {
  m.impl("honest", [](const Tensor& x) { return at::empty_like(x); });
  m.impl("dishonest", [](const Tensor& x) { return at::empty_like(x); });
  m.impl("twins", [](const Tensor& x) {
    return std::tuple(at::empty_like(x), at::empty_like(x).view({-1}));
  });
}

template <class Signature>
auto call(const char* name, const Tensor& x) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Signature>().call(x);
}

/// Counts LibTorch's warnings that name an operator.
class Warnings : public c10::WarningHandler {
 public:
  explicit Warnings(std::string name)
      : name_(std::move(name)), before_(c10::WarningUtils::get_warning_handler()) {
    c10::WarningUtils::set_warning_handler(this);
  }
  ~Warnings() override { c10::WarningUtils::set_warning_handler(before_); }
  void process(const c10::Warning& warning) override {
    count += warning.msg().find(name_) != std::string::npos ? 1 : 0;
  }
  int count = 0;

 private:
  const std::string name_;
  c10::WarningHandler* const before_;
};

auto calling(const char* name) {
  return [name](const Tensor& x) { return call<Tensor(const Tensor&)>(name, x + 1).sin(); };
}

TEST(CustomOpCheck, WarnsOnce) {
  auto compiled =
      compile(calling("ahead_alias_test::dishonest"), {.fullgraph = true, .confirm = 0});
  const Warnings warnings("ahead_alias_test::dishonest");
  for (int i = 0; i < 3; ++i) compiled(torch::ones({3}));
  EXPECT_EQ(warnings.count, 1);
  expect_hits(compiled);
}

TEST(CustomOpCheck, ThrowsOnRequest) {
  const Options options{.fullgraph = true, .custom_op_aliasing = SchemaCheck::Throw};
  auto dishonest =
      compiled_by_call(calling("ahead_alias_test::dishonest"), options, torch::ones({3}));
  EXPECT_THROW(dishonest(torch::ones({3})), UserError);
  auto twin = compiled_by_call(
      [](const Tensor& x) {
        auto [a, b] = call<std::tuple<Tensor, Tensor>(const Tensor&)>("ahead_alias_test::twins", x);
        return a.sin() + b.cos();
      },
      options, torch::ones({3}));
  EXPECT_THROW(twin(torch::ones({3})), UserError);
}

TEST(CustomOpCheck, LooksAtTheBackwardToo) {
  struct Function : torch::autograd::Function<Function> {
    static Tensor forward(torch::autograd::AutogradContext*, const Tensor& x) { return x * 3; }
    static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                   torch::autograd::variable_list gradients) {
      return {call<Tensor(const Tensor&)>("ahead_alias_test::dishonest", gradients[0] * 3)};
    }
  };
  auto compiled = compiled_by_call([](const Tensor& x) { return Function::apply(x).sin(); },
                                   {.fullgraph = true, .custom_op_aliasing = SchemaCheck::Throw},
                                   torch::ones({3}).requires_grad_());
  const Tensor x = torch::ones({3}).requires_grad_();
  const Tensor y = compiled(x);
  EXPECT_THROW(y.sum().backward(), UserError);
  expect_hits(compiled);
}

TEST(CustomOpCheck, LeavesOthersAlone) {
  auto honest = compiled_by_call(calling("ahead_alias_test::honest"),
                                 {.fullgraph = true, .custom_op_aliasing = SchemaCheck::Throw},
                                 torch::ones({3}));
  EXPECT_NO_THROW(honest(torch::ones({3})));
  expect_hits(honest);
  auto unchecked = compiled_by_call(calling("ahead_alias_test::dishonest"),
                                    {.fullgraph = true, .custom_op_aliasing = SchemaCheck::Off},
                                    torch::ones({3}));
  EXPECT_NO_THROW(unchecked(torch::ones({3})));
  expect_hits(unchecked);
}

TEST(CustomOpCheck, ViewsThatSchemasAnnounceRunEagerly) {
  const auto function = calling("ahead_alias_test::announced");
  auto compiled = compile(function, {.confirm = 0, .custom_op_aliasing = SchemaCheck::Throw});
  for (int call = 0; call < 3; ++call)
    EXPECT_TRUE(at::equal(compiled(torch::ones({3})), function(torch::ones({3}))));
  expect_runs_eagerly(compiled);
  auto whole = compile(function, {.fullgraph = true, .confirm = 0});
  EXPECT_THROW(whole(torch::ones({3})), Unsupported);
}

}  // namespace custom_op_check_test
}  // namespace ahead
