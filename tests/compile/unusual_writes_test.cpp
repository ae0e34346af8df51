#include <ATen/native/Resize.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "ahead/ahead.h"
#include "support/eager.h"
#include "support/hits.h"

/// Writes that no graph can repeat: the function runs eagerly, and a trace says why not.
namespace ahead {
namespace unusual_writes_test {

using Tensors = std::vector<at::Tensor>;

template <class F>
void expect_refused(F&& function, const Tensors& inputs, const std::string& word) {
  try {
    trace(function, inputs);
    FAIL() << "nothing was refused";
  } catch (const Unsupported& error) {
    EXPECT_NE(std::string(error.what()).find(word), std::string::npos) << error.what();
  }
}

TEST(UnusualWrites, SetDataOfACapturedTensor) {
  const at::Tensor buffer = torch::zeros({3});
  const auto f = [buffer](const Tensors& in) {
    at::Tensor same = buffer;
    same.set_data(in[0].detach() * 2);
    return Tensors{same + in[0]};
  };
  expect_refused(f, {torch::ones({3})}, "set_data");
  EXPECT_TRUE(at::equal(buffer, torch::zeros({3})));
  auto compiled = compile(f, {.confirm = 0});
  for (int call = 1; call < 4; ++call) {
    const Tensors results = compiled(Tensors{torch::full({3}, call)});
    EXPECT_TRUE(at::equal(results[0], torch::full({3}, 3.0f * static_cast<float>(call))));
    EXPECT_TRUE(at::equal(buffer, torch::full({3}, 2.0f * static_cast<float>(call))));
  }
  expect_runs_eagerly(compiled);
}

TEST(UnusualWrites, SetDataOfAnArgument) {
  const auto f = [](const Tensors& in) {
    at::Tensor same = in[0];
    same.set_data(in[1] + 1);
    return Tensors{same * 2};
  };
  expect_refused(f, {torch::ones({3}), torch::ones({2})}, "set_data");
  auto compiled = compile(f, {.confirm = 0});
  for (int call = 0; call < 3; ++call) {
    const at::Tensor x = torch::ones({3}), y = torch::ones({2}), z = torch::ones({3});
    expect_same(f({z, y}), compiled(Tensors{x, y}));
    expect_same({z}, {x});
  }
  expect_runs_eagerly(compiled);
}

/// Compiles a function and checks that it runs eagerly, for a reason about a storage.
template <class F>
void expect_storage_refused(F&& function) {
  auto compiled = compile(function, {.confirm = 0});
  for (int call = 0; call < 3; ++call) compiled(Tensors{torch::ones({4})});
  expect_runs_eagerly(compiled);
  EXPECT_NE(compiled.explain(Tensors{torch::ones({4})}).find("the size of a storage"),
            std::string::npos)
      << compiled.explain(Tensors{torch::ones({4})});
}

TEST(UnusualWrites, SizesOfStoragesThatNoOperatorChanges) {
  const at::Tensor buffer = torch::ones({4});
  expect_storage_refused([buffer](const Tensors& in) {
    at::Tensor result = in[0] * buffer;
    at::native::resize_bytes_cpu(buffer.storage().unsafeGetStorageImpl(),
                                 buffer.storage().nbytes() + 64);
    return Tensors{result};
  });
  // The size is another one only while the function runs.
  expect_storage_refused([buffer](const Tensors& in) {
    const at::Tensor before = in[0] * buffer;
    c10::StorageImpl* storage = buffer.storage().unsafeGetStorageImpl();
    const size_t bytes = storage->nbytes();
    at::native::resize_bytes_cpu(storage, bytes + 64);
    const at::Tensor result = before + buffer;
    storage->set_nbytes(bytes);
    return Tensors{result};
  });
  expect_storage_refused([](const Tensors& in) {
    at::Tensor result = in[0] * 2;
    in[0].storage().set_nbytes(8);
    return Tensors{result};
  });
}

TEST(UnusualWrites, SizesOfStoragesThatAreNotMetYet) {
  const at::Tensor buffer = torch::ones({4});
  const auto f = [buffer](const Tensors& in) {
    at::native::resize_bytes_cpu(buffer.storage().unsafeGetStorageImpl(),
                                 buffer.storage().nbytes() + 64);
    return Tensors{in[0] * buffer};
  };
  auto compiled = compile(f);
  for (int call = 0; call < 4; ++call) {
    compiled(Tensors{torch::ones({4})});
    EXPECT_EQ(buffer.storage().nbytes(), 16u + 64u * static_cast<size_t>(call + 1));
  }
  expect_runs_eagerly(compiled, 3);
}

TEST(UnusualWrites, SizesOfStoragesThatOperatorsChange) {
  const auto f = [](const Tensors& in) {
    at::Tensor out = at::empty({0});
    at::mul_out(out, in[0], in[0]);
    const at::Tensor sum = out + in[0];
    at::cat_out(out, {sum, sum});
    return Tensors{out * 2};
  };
  auto compiled = compile(f, {.confirm = 0});
  for (int call = 0; call < 3; ++call) {
    const at::Tensor x = torch::randn({4});
    expect_same(f({x}), compiled(Tensors{x}));
  }
  EXPECT_EQ(compiled.stats().eager_calls, 0u);
}

TEST(UnusualWrites, ResultsOverOperands) {
  const auto product = [](const Tensors& in) {
    at::Tensor result = in[0];
    at::mm_out(result, result, in[1]);
    return Tensors{result.clone()};
  };
  expect_refused(product, {torch::randn({3, 3}), torch::randn({3, 3})}, "operand");
  auto eager = compile(product, {.confirm = 0});
  for (int call = 0; call < 3; ++call) {
    const at::Tensor x = torch::randn({3, 3}), y = x.clone(), other = torch::randn({3, 3});
    expect_same(product({y, other}), eager(Tensors{x, other}));
    expect_same({y}, {x});
  }
  expect_runs_eagerly(eager);
  const auto sum = [](const Tensors& in) {
    at::Tensor result = in[0];
    at::add_out(result, result, result);
    return Tensors{result.mul_(result).clone()};
  };
  auto compiled = compile(sum, {.fullgraph = true, .confirm = 0});
  for (int call = 0; call < 3; ++call) {
    const at::Tensor x = torch::randn({3}), y = x.clone();
    expect_same(sum({y}), compiled(Tensors{x}));
    expect_same({y}, {x});
  }
  expect_hits(compiled);
}

TEST(UnusualWrites, ResultsOfAnotherSize) {
  const auto f = [](const Tensors& in) {
    at::Tensor result = in[1];
    at::add_out(result, in[0], in[0]);
    return Tensors{result * 2};
  };
  expect_refused(f, {torch::ones({3}), torch::empty({0})}, "size");
  auto compiled = compile(f, {.confirm = 0});
  for (int call = 0; call < 3; ++call) {
    const at::Tensor x = torch::randn({3}), y = torch::empty({0}), z = torch::empty({0});
    expect_same(f({x, z}), compiled(Tensors{x, y}));
    expect_same({z}, {y});
  }
  expect_runs_eagerly(compiled);
  const auto own = [](const Tensors& in) {
    at::Tensor result = torch::empty({0});
    at::add_out(result, in[0], in[0]);
    return Tensors{result};
  };
  auto resized = compiled_by_call(own, {.fullgraph = true}, Tensors{torch::zeros({3})});
  expect_same({torch::full({3}, 2.0f)}, resized(Tensors{torch::ones({3})}));
  expect_hits(resized);
}

TEST(UnusualWrites, ToOneOfSeveralViewsBesideAHook) {
  // The hook divides the function; nobody may ask for the history of what was written.
  const auto f = [](const at::Tensor& x) {
    const at::Tensor part = x.split(1)[0], doubled = x * 1;
    doubled.register_hook([](const at::Tensor& gradient) { return gradient * 2; });
    at::NoGradGuard no_grad;
    part.fill_(3);
    return doubled;
  };
  auto compiled = compile(f, {.confirm = 0});
  for (int call = 0; call < 4; ++call) {
    const at::Tensor x = torch::rand({1}).requires_grad_(), same = x.detach().clone();
    const at::Tensor y = compiled(x);
    EXPECT_TRUE(at::equal(y.detach(), same));
    EXPECT_TRUE(at::equal(x.detach(), torch::full({1}, 3.0f)));
    EXPECT_TRUE(at::equal(torch::autograd::grad({y.sum()}, {x})[0], torch::full({1}, 2.0f)));
  }
  expect_hits(compiled);
}

TEST(UnusualWrites, ViewsInInferenceMode) {
  const at::Tensor weight = torch::randn({2, 4}).requires_grad_();
  const auto f = [weight](const Tensors& in) {
    at::Tensor target;
    {
      c10::InferenceMode inference;
      target = in[0].mm(weight.t()).softmax(-1);
    }
    return Tensors{target, in[0].mm(weight.t())};
  };
  expect_refused(f, {torch::randn({3, 4})}, "inference mode");
  auto compiled = compile(f, {.confirm = 0});
  for (int call = 0; call < 3; ++call) {
    const at::Tensor x = torch::randn({3, 4});
    expect_same(f({x}), compiled(Tensors{x}));
  }
  expect_runs_eagerly(compiled);
}

}  // namespace unusual_writes_test
}  // namespace ahead
