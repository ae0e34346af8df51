#include "subclass/wrapped_check.h"

namespace ahead::wrapped::tangents_test {

/// A tensor with a number. Gradients have the number 0, whatever that of the tensor is; others are
/// made so.
class Zeroed final : public WrapperTensorOf<Zeroed> {
 public:
  static constexpr const char* class_name = "Zeroed";
  static at::Tensor make(at::Tensor inner, int64_t tag) {
    const WrapperLook look = WrapperLook::of(inner);
    return wrap(std::make_shared<const Zeroed>(std::move(inner), tag), look);
  }
  Zeroed(at::Tensor inner, int64_t tag) : inner_(std::move(inner)), tag_(tag) {}
  WrapperParts flatten() const override { return {{inner_}, tag_}; }
  static std::shared_ptr<const Zeroed> unflatten(WrapperParts parts) {
    return std::make_shared<const Zeroed>(parts.inner.at(0), parts.metadata.toInt());
  }
  bool dispatch(const c10::OperatorHandle& op, torch::jit::Stack& stack) const override {
    dispatch_to_each(op, stack);
    return true;
  }
  at::Tensor coerce_tangent(const at::Tensor&) const override { return make(inner_, 0); }
  at::Tensor coerce_same_metadata_as_tangent(const at::Tensor&, const WrapperClass&,
                                             const c10::IValue& metadata) const override {
    return tag_ == 13 ? at::Tensor() : make(inner_, metadata.toInt());
  }

 private:
  at::Tensor inner_;
  int64_t tag_;
};

TEST(SubclassTangents, AreCoercedToWhatWasExpected) {
  auto compiled = ahead::compile([](const at::Tensor& x) { return x * x; },
                                 {.backend = "interpreter", .fullgraph = true});
  for (int call = 0; call < 4; ++call) {
    const at::Tensor inner = at::randn({3}), tangent = at::randn({3});
    const at::Tensor x = Zeroed::make(inner, 5).requires_grad_();
    const at::Tensor y = compiled(x);
    y.backward(Zeroed::make(tangent, call));
    Tensors plain;
    append_plain(x.grad(), plain);
    EXPECT_TRUE(at::equal(plain[0], tangent * inner + tangent * inner)) << call;
  }
  EXPECT_EQ(compiled.stats().eager_calls, 0U);
  EXPECT_EQ(compiled.stats().cache_hits, 1U);
}

TEST(SubclassTangents, AreRefusedIfTheyCannotBe) {
  auto compiled =
      ahead::compile([](const at::Tensor& x) { return x * x; },
                     {.backend = "interpreter", .fullgraph = true, .confirm = Confirm::Never});
  const at::Tensor x = Zeroed::make(at::randn({3}), 5).requires_grad_();
  compiled(x);
  const at::Tensor y = compiled(x);
  EXPECT_EQ(compiled.stats().cache_hits, 1U);
  const std::string error = error_of([&] { y.backward(Zeroed::make(at::ones({3}), 13)); });
  EXPECT_NE(error.find("we guessed its metadata incorrectly"), std::string::npos) << error;
  EXPECT_NE(error.find("Zeroed(Tensor; 0), got Zeroed(Tensor; 13)"), std::string::npos) << error;
}

// The gradient of a wrapper that was written to is expected to be made like it, and need not come.
TEST(SubclassTangents, OfWrittenArgumentsAreNotGuessed) {
  const auto f = [](const at::Tensor& x, const at::Tensor& y) {
    x.mul_(y);
    return y.sin();
  };
  auto compiled = ahead::compile(f, {.backend = "interpreter", .fullgraph = true});
  for (const bool differentiates_written : {false, true}) {
    for (int call = 0; call < 4; ++call) {
      Tensors grads[2];
      for (const bool eager : {true, false}) {
        torch::manual_seed(call);
        const at::Tensor root = two({3}, true), y = two({3}, true), x = root * 2;
        const at::Tensor z = eager ? f(x, y) : compiled(x, y);
        (differentiates_written ? x * x : z).backward(two({3}));
        grads[eager ? 0 : 1] = {root.grad(), y.grad(), x.detach()};
      }
      EXPECT_EQ(grads[0][0].defined(), differentiates_written);
      EXPECT_EQ(grads[1][0].defined(), differentiates_written);
      for (size_t i = differentiates_written ? 0 : 1; i < 3; ++i)
        EXPECT_EQ(difference(grads[0][i], grads[1][i]), "") << call << i;
    }
  }
  EXPECT_EQ(compiled.stats().eager_calls, 0U);
  EXPECT_GE(compiled.stats().cache_hits, 4U);
}

TEST(SubclassTangents, MayLieInAnyWay) {
  auto compiled = ahead::compile([](const at::Tensor& x) { return x * x.sin(); },
                                 {.backend = "interpreter", .fullgraph = true});
  for (int call = 0; call < 6; ++call) {
    torch::manual_seed(call);
    const at::Tensor x = two({4, 3}, true), same = x.detach().clone().requires_grad_();
    const at::Tensor tangent = call % 2 == 0 ? two({4, 3}) : two({3, 4}).t();
    (x * x.sin()).backward(tangent);
    compiled(same).backward(tangent);
    EXPECT_EQ(difference(x.grad(), same.grad()), "") << call;
  }
  EXPECT_EQ(compiled.stats().eager_calls, 0U);
  EXPECT_GE(compiled.stats().cache_hits, 3U);
}

}  // namespace ahead::wrapped::tangents_test
