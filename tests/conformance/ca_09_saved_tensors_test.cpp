#include <gtest/gtest.h>
#include <torch/csrc/autograd/saved_variable_hooks.h>
#include <torch/torch.h>
#include <unistd.h>

#include <filesystem>

#include "ahead/checkpoint.h"
#include "ahead/compiled_autograd.h"
#include "base/front_engine.h"
#include "checkpoint/saved_tensor_hooks.h"
#include "conformance/ca_functions.h"
#include "support/engine_check.h"
#include "support/trace_check.h"

namespace ahead::conformance {
namespace ca_09_saved_tensors_test {

using compiled_autograd::Stats;
using test::all_reasons;
using test::expect_as_eager;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using Tensors = std::vector<at::Tensor>;

/// As eager, in one graph with calls.
Stats expect_whole(const test::BackwardProgram& program, compiled_autograd::Options options = {}) {
  options.fullgraph = true;
  const Stats stats = expect_as_eager(program, 3, options);
  EXPECT_EQ(stats.captures, 1u) << all_reasons();
  EXPECT_EQ(stats.eager_nodes + stats.cuts + stats.eager_fallbacks, 0u) << all_reasons();
  return stats;
}

TEST(CaSavedTensors, test_checkpointing_simple) {
  const Stats reentrant = expect_whole([] {
    const at::Tensor x = leaf({4, 4}), w = leaf({4, 4});
    Reentrant::apply(x.sin(), w).exp().sum().backward();
    return Tensors{x.grad(), w.grad()};
  });
  EXPECT_EQ(reentrant.calls, 3u);
  const Stats other = expect_whole([] {
    const at::Tensor x = leaf({4, 4}), w = leaf({4, 4});
    const auto region = [](const at::Tensor& h, const at::Tensor& v) { return h.mm(v).tanh(); };
    checkpoint(CheckpointPolicy::recompute_everything(), region, x.sin(), w).exp().sum().backward();
    return Tensors{x.grad(), w.grad()};
  });
  EXPECT_EQ(other.calls, 3u);
  // The call that unpacks stands right before the first use of what it returns.
  const auto graphs = compiled_autograd::graphs();
  ASSERT_EQ(graphs.size(), 1u);
  const Graph& graph = *graphs[0];
  ASSERT_EQ(count(graph, "ahead.call_hook"), 1u) << graph.str();
  for (const Node& node : graph.nodes()) {
    if (node.op().name() != "ahead.call_hook") continue;
    ASSERT_NE(node.next(), nullptr);
    EXPECT_EQ(node.next()->op().name(), "aten.tanh_backward") << graph.str();
  }
}

TEST(CaSavedTensors, test_checkpointing_sac) {
  const Stats stats = expect_whole([] {
    torch::nn::Sequential net;
    for (int i = 0; i < 4; ++i) net->push_back(torch::nn::Linear(4, 4));
    const CheckpointPolicy policy([](const Operator& op) {
      return op.name() == "aten.addmm" ? Saving::MustRecompute : Saving::MustSave;
    });
    const auto layers = [net](const at::Tensor& x) {
      auto copy = net;
      return copy->forward(x);
    };
    const at::Tensor x = torch::randn({2, 4}).requires_grad_();
    checkpoint(policy, layers, x).sum().backward();
    Tensors grads = test::grads_of(*net);
    EXPECT_EQ(grads.size(), 8u);
    return grads;
  });
  EXPECT_GE(stats.calls, 3u);
}

/// Keeps what is saved elsewhere.
class Elsewhere : public torch::autograd::SavedVariableHooks {
 public:
  void call_pack_hook(const at::Tensor& tensor) override { stored_ = tensor.to(at::kDouble); }
  at::Tensor call_unpack_hook() override { return stored_.to(at::kFloat); }

 private:
  at::Tensor stored_;
};

/// Keeps what is saved in a file.
class OnDisk : public torch::autograd::SavedVariableHooks {
 public:
  static inline int64_t files = 0;
  OnDisk()
      : path_(std::filesystem::temp_directory_path() /
              ("ahead_saved_" + std::to_string(getpid()) + "_" + std::to_string(files++))) {}
  ~OnDisk() override { std::filesystem::remove(path_); }
  void call_pack_hook(const at::Tensor& tensor) override {
    torch::save(tensor.detach(), path_.string());
  }
  at::Tensor call_unpack_hook() override {
    at::Tensor loaded;
    torch::load(loaded, path_.string());
    return loaded;
  }

 private:
  const std::filesystem::path path_;
};

template <class Hooks>
class Offload final : public SavedTensorPacker {
 public:
  Offload() : scope_(*this) {}
  std::unique_ptr<torch::autograd::SavedVariableHooks> make_hooks() override {
    return std::make_unique<Hooks>();
  }

 private:
  runtime::PackerScope scope_;
};

template <class Hooks>
at::Tensor offloaded_gradient(int64_t size) {
  const at::Tensor x = leaf({size, 3});
  at::Tensor y;
  {
    const Offload<Hooks> hooks;
    y = (x.sin() * x.exp()).tanh();
  }
  y.sum().backward();
  return x.grad();
}

TEST(CaSavedTensors, test_cpu_offloading) {
  expect_whole(
      [] {
        Tensors grads;
        for (const int64_t size : {10, 20, 30})
          grads.push_back(offloaded_gradient<Elsewhere>(size));
        return grads;
      },
      {.dynamic = true});
}

TEST(CaSavedTensors, test_disk_offloading) {
  OnDisk::files = 0;
  const Stats stats = expect_whole([] { return Tensors{offloaded_gradient<OnDisk>(4)}; });
  EXPECT_EQ(OnDisk::files, 4 * 5) << "packed as often as in eager";
  EXPECT_EQ(stats.calls, 3u * 4u) << "sin and exp, their product, tanh";
}

/// Random numbers are drawn again in the call that unpacks, from the state of the first time.
TEST(CaBasic, test_trace_run_with_rng_state) {
  const Stats stats = expect_whole([] {
    const at::Tensor q = leaf({2, 2, 4, 8}), k = leaf({2, 2, 4, 8}), v = leaf({2, 2, 4, 8});
    const auto attend = [](const at::Tensor& a, const at::Tensor& b, const at::Tensor& c) {
      return at::scaled_dot_product_attention(a, b, c, {}, /*dropout_p=*/0.5);
    };
    checkpoint(CheckpointPolicy::recompute_everything(), attend, q * 2, k * 2, v * 2)
        .sin()
        .sum()
        .backward();
    return Tensors{q.grad(), k.grad(), v.grad(), torch::rand({2})};
  });
  EXPECT_EQ(stats.calls, 3u);
}

}  // namespace ca_09_saved_tensors_test
}  // namespace ahead::conformance
