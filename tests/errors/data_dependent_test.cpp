#include <gtest/gtest.h>

#include <sstream>

#include "ahead/ahead.h"

namespace data_dependent_test {

using at::Tensor;
using Tensors = std::vector<at::Tensor>;

/// Reads the values of a traced tensor in some way.
struct Reading {
  const char* name;
  const char* named_operator;  ///< what the message must name
  std::function<void(const Tensor&)> read;
};

class DataDependent : public testing::TestWithParam<Reading> {};

TEST_P(DataDependent, ThrowsAndLeavesTheProcessUsable) {
  const Reading& reading = GetParam();
  Tensor x = torch::rand({2, 2}).requires_grad_();
  auto function = [&](const Tensors& in) {
    reading.read(in[0] * 2);
    return Tensors{in[0] * 2};
  };
  for (int round = 0; round < 2; ++round) {
    try {
      ahead::trace_joint(function, {x});
      FAIL() << reading.name << " was traced";
    } catch (const ahead::DataDependent& error) {
      EXPECT_NE(std::string(error.what()).find(reading.named_operator), std::string::npos)
          << error.what();
    }
    // Nothing of the trace is in effect any more.
    Tensor y = (x * 3).sum();
    y.backward();
    EXPECT_EQ(x.grad().sum().item<float>(), 12.0f * static_cast<float>(round + 1));
    EXPECT_EQ(ahead::trace([](const Tensors& in) { return Tensors{in[0].sin()}; }, {x}).num_nodes(),
              1u);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Readings, DataDependent,
    testing::Values(
        Reading{"item", "aten._local_scalar_dense", [](const Tensor& t) { t.sum().item<float>(); }},
        Reading{"bool", "aten._local_scalar_dense",
                [](const Tensor& t) { (void)t.sum().is_nonzero(); }},
        Reading{"nonzero", "aten.nonzero", [](const Tensor& t) { (void)t.nonzero(); }},
        Reading{"masked_select", "aten.masked_select",
                [](const Tensor& t) { (void)t.masked_select(t > 1); }},
        Reading{"equal", "aten.equal", [](const Tensor& t) { (void)t.equal(t); }},
        Reading{"allclose", "aten.", [](const Tensor& t) { (void)t.allclose(t + 1); }},
        Reading{"unique", "unique", [](const Tensor& t) { (void)at::_unique(t); }},
        Reading{"boolean_index", "aten.", [](const Tensor& t) { (void)t.index({t > 1}); }},
        Reading{"repeat_interleave", "aten.repeat_interleave",
                [](const Tensor& t) { (void)at::repeat_interleave(t.flatten().to(at::kLong)); }},
        Reading{"data_ptr", "data_ptr", [](const Tensor& t) { (void)t.data_ptr<float>(); }},
        Reading{"const_data_ptr", "data_ptr",
                [](const Tensor& t) { (void)t.const_data_ptr<float>(); }},
        Reading{"untyped_data_ptr", "data_ptr", [](const Tensor& t) { (void)t.data_ptr(); }},
        Reading{"accessor", "accessor", [](const Tensor& t) { (void)t.accessor<float, 2>(); }},
        Reading{"print", "print", [](const Tensor& t) { std::ostringstream() << t; }},
        Reading{"data_ptr_on_cpu", "data_ptr",
                [](const Tensor& t) { (void)t.to(at::kCPU).data_ptr<float>(); }}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace data_dependent_test
