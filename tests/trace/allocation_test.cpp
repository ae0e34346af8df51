#include <ATen/FunctionalTensorWrapper.h>
#include <ahead/ahead.h>
#include <c10/core/CPUAllocator.h>
#include <gtest/gtest.h>

#include "models/models.h"

namespace allocation_test {

/// While it exists, counts what LibTorch allocates for the data of CPU tensors.
class CountingAllocator final : public c10::Allocator {
 public:
  CountingAllocator() : inner_(c10::GetCPUAllocator()) { c10::SetCPUAllocator(this, kPriority); }
  ~CountingAllocator() override { c10::SetCPUAllocator(inner_, kPriority); }

  c10::DataPtr allocate(size_t bytes) override {
    if (bytes > kNumberBytes) {
      ++blocks_;
      largest_ = std::max(largest_, bytes);
    }
    return inner_->allocate(bytes);
  }
  c10::DeleterFnPtr raw_deleter() const override { return inner_->raw_deleter(); }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    inner_->copy_data(to, from, bytes);
  }

  size_t blocks() const { return blocks_; }
  size_t largest() const { return largest_; }

 private:
  /// LibTorch turns a number such as the 2 of `x * 2` into a tensor of one element before anybody
  /// can see the call. The widest element, a complex number, has 16 bytes.
  static constexpr size_t kNumberBytes = 16;
  static constexpr uint8_t kPriority = 255;

  c10::Allocator* inner_;
  size_t blocks_ = 0;
  size_t largest_ = 0;
};

class Allocation : public testing::TestWithParam<models::Workload (*)()> {};

TEST_P(Allocation, NoTensorDataWhileTracing) {
  const models::Workload workload = GetParam()();
  const uint64_t real_kernels = ahead::trace_stats().real_kernel_calls;
  CountingAllocator allocator;
  ahead::trace_joint(workload.loss, workload.inputs);
  EXPECT_EQ(allocator.blocks(), 0u) << "the largest has " << allocator.largest() << " bytes";
  EXPECT_EQ(ahead::trace_stats().real_kernel_calls, real_kernels);
}

/// A trace of many operators must not keep what the function itself no longer has.
TEST(TracedTensors, WhatTheFunctionLetsGoIsGone) {
  ahead::trace(
      [](const std::vector<at::Tensor>& in) {
        at::NoGradGuard no_grad;
        at::Tensor x = in[0].sin();
        const at::Tensor inside = at::functionalization::impl::from_functional_tensor(x);
        const c10::weak_intrusive_ptr<c10::TensorImpl> watched(inside.getIntrusivePtr());
        const size_t uses = watched.use_count();
        x = x.detach().clone();
        EXPECT_LT(watched.use_count(), uses);
        EXPECT_EQ(watched.use_count(), 1u);
        return std::vector<at::Tensor>{x};
      },
      {torch::rand({3})});
}

TEST(TracedTensors, NothingOfATraceIsLeftBehind) {
  c10::weak_intrusive_ptr<c10::StorageImpl> memory(c10::intrusive_ptr<c10::StorageImpl>{});
  const auto function = [&](const std::vector<at::Tensor>& in) -> std::vector<at::Tensor> {
    const at::Tensor twice = in[0] * 2;
    memory =
        at::functionalization::impl::from_functional_tensor(twice).storage().getWeakStorageImpl();
    return {twice.sin()};
  };
  ahead::trace_joint(function, {at::ones({3}).requires_grad_()});
  EXPECT_EQ(memory.use_count(), 0U);
}

TEST(AllocationCounter, SeesTensorDataAndLeavesNumbersOut) {
  CountingAllocator allocator;
  at::Tensor x = torch::zeros({5});
  EXPECT_EQ(allocator.blocks(), 1u);
  EXPECT_EQ(allocator.largest(), 20u);
  torch::zeros({}, at::kComplexDouble);
  EXPECT_EQ(allocator.blocks(), 1u);
}

models::Workload gpt2_workload() {
  models::GptOptions options;
  options.layers = 2;
  return models::gpt_workload(options);
}

std::string model_name(size_t index) {
  return std::vector<std::string>{"mlp", "gpt", "resnet", "lstm", "pinn"}.at(index);
}

INSTANTIATE_TEST_SUITE_P(Models, Allocation,
                         testing::Values(models::mlp_workload, gpt2_workload,
                                         models::resnet_workload, models::lstm_workload,
                                         models::pinn_workload),
                         [](const auto& info) { return model_name(info.index); });

}  // namespace allocation_test
