#include "conformance/aot_support.h"

namespace ahead::conformance {
namespace aot_25_lifetime_test {

/// Which saved values only the compiled function holds, as the default partition sees it.
std::vector<bool> owned(const aot::FlatFunction& f, const Tensors& inputs) {
  std::vector<bool> result;
  const PartitionedGraphs graphs = partition_default(trace_joint(f, inputs));
  for (const SavedValue& saved : graphs.saved) result.push_back(saved.owned);
  return result;
}

TEST(AotLifetime, test_donated_buffer1) {
  EXPECT_EQ(owned([](const Tensors& in) -> Tensors { return {(in[0] * 2).relu().sum()}; },
                  {leaf({3, 2})}),
            std::vector<bool>({true}));
}

TEST(AotLifetime, test_donated_buffer2) {
  const aot::FlatFunction f = [](const Tensors& in) -> Tensors { return {in[0].matmul(in[1])}; };
  for (const bool is_owned : owned(f, {leaf({3, 3}), leaf({3, 3})})) EXPECT_FALSE(is_owned);
}

TEST(AotLifetime, test_donated_buffer3) {
  // The argument is also kept by an eager operator.
  const aot::FlatFunction f = [](const Tensors& in) -> Tensors { return {in[0] * in[0]}; };
  for (const bool is_owned : owned(f, {leaf({3})})) EXPECT_FALSE(is_owned);
  auto compiled = compiled_once(f, {leaf({3}).exp()});
  const at::Tensor x = leaf({3});
  const at::Tensor y = x.exp();
  compiled(Tensors{y})[0].sum().backward();
  EXPECT_TRUE(at::allclose(x.grad(), 2 * (2 * x.detach()).exp()));
  expect_hits(compiled);
}

TEST(AotLifetime, test_donated_buffer5) {
  const aot::FlatFunction f = [](const Tensors& in) -> Tensors {
    return {(in[0] * in[0]).exp().sum()};
  };
  EXPECT_EQ(owned(f, {leaf({3})}), std::vector<bool>({false, true}));
}

aot::FlatFunction squares_of_sines() {
  return [](const Tensors& in) -> Tensors { return {(in[0].sin() * in[0]).exp().sum()}; };
}

/// Runs a number of backwards and compares what they add up to.
void expect_same_backwards(const std::function<void(const at::Tensor& loss)>& backwards,
                           int rounds) {
  auto compiled = compiled_once(squares_of_sines(), {leaf({4})});
  const at::Tensor eager = leaf({4}), own = eager.detach().clone().set_requires_grad(true);
  for (int round = 0; round < rounds; ++round) {
    backwards(squares_of_sines()({eager})[0]);
    backwards(compiled(Tensors{own})[0]);
    EXPECT_EQ(tensor_difference(eager.grad().detach(), own.grad().detach()), "");
  }
  expect_hits(compiled);
}

TEST(AotLifetime, test_donated_buffer_with_retain_or_create_graph1) {
  expect_same_backwards([](const at::Tensor& loss) { loss.backward(); }, 5);
}

TEST(AotLifetime, test_donated_buffer_with_retain_or_create_graph2) {
  expect_same_backwards(
      [](const at::Tensor& loss) {
        for (int i = 0; i < 5; ++i) loss.backward({}, /*retain_graph=*/true);
        loss.backward();
      },
      2);
}

TEST(AotLifetime, test_donated_buffer_with_retain_or_create_graph3) {
  expect_same_backwards(
      [](const at::Tensor& loss) {
        loss.backward({}, /*retain_graph=*/true, /*create_graph=*/true);
        for (int i = 0; i < 4; ++i) loss.backward({}, /*retain_graph=*/true);
        loss.backward();
      },
      1);
}

TEST(AotLifetime, test_donated_buffer_with_retain_or_create_graph4) {
  // Upstream refuses to retain a graph whose backward was compiled for one run; eager does not.
  expect_same_backwards(
      [](const at::Tensor& loss) { loss.backward({}, /*retain_graph=*/loss.numel() == 1); }, 3);
  auto compiled = compiled_once(squares_of_sines(), {leaf({4})});
  const at::Tensor x = leaf({4});
  compiled(Tensors{x})[0].backward();
  const at::Tensor once = x.grad().clone();
  const at::Tensor loss = compiled(Tensors{x})[0];
  loss.backward({}, /*retain_graph=*/true);
  loss.backward();
  EXPECT_TRUE(at::allclose(x.grad(), 3 * once));
  const std::string error = error_of([&] { loss.backward(); });
  EXPECT_NE(error.find("second time"), std::string::npos) << error;
  expect_hits(compiled);
}

TEST(AotLifetime, test_mem_leak_from_save_for_bw) {
  // Nothing may hold the saved values once the outputs are gone.
  auto compiled = compiled_by_call(
      [](const at::Tensor& a, const at::Tensor& b) {
        const at::Tensor c = a * b;
        return std::make_tuple(c, c.view({-1}), c.sin());
      },
      {.fullgraph = true}, leaf({4, 4}), leaf({4, 4}));
  const at::Tensor a = leaf({4, 4}), b = leaf({4, 4});
  c10::weak_intrusive_ptr<c10::TensorImpl> out(a.getIntrusivePtr());
  c10::weak_intrusive_ptr<c10::StorageImpl> memory(a.storage().getWeakStorageImpl());
  {
    const auto [c, view, sine] = compiled(a, b);
    out = c10::weak_intrusive_ptr<c10::TensorImpl>(c.getIntrusivePtr());
    memory = c10::weak_intrusive_ptr<c10::StorageImpl>(c.storage().getWeakStorageImpl());
    EXPECT_FALSE(memory.expired());
  }
  EXPECT_TRUE(out.expired());
  EXPECT_TRUE(memory.expired());
  expect_hits(compiled);
}

TEST(AotLifetime, test_tangent_user_provided_via_pop) {
  // The backward keeps no tangent beyond its last use.
  auto compiled =
      compiled_by_call([](const at::Tensor& x) { return x * 2; }, {.fullgraph = true}, leaf({4}));
  const at::Tensor x = leaf({4});
  const at::Tensor out = compiled(x);
  at::Tensor tangent = at::randn({4});
  c10::weak_intrusive_ptr<c10::TensorImpl> watched(tangent.getIntrusivePtr());
  out.backward(tangent);
  tangent.reset();
  EXPECT_TRUE(watched.expired());
  expect_hits(compiled);
}

}  // namespace aot_25_lifetime_test
}  // namespace ahead::conformance
